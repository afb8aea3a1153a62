// The AI SDK with its provider @ai-sdk/openai-compatible.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

import { serveModel } from "./lab_ai_sdk.mjs";

await serveModel((lab) => createOpenAICompatible({ name: "lab", baseURL: `${lab.base}/v1`, apiKey: lab.key })(lab.model));
