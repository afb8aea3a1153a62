// The AI SDK with its provider @ai-sdk/openai.

import { createOpenAI } from "@ai-sdk/openai";

import { serveModel } from "./lab_ai_sdk.mjs";

await serveModel((lab) => createOpenAI({ baseURL: `${lab.base}/v1`, apiKey: lab.key })(lab.model));
