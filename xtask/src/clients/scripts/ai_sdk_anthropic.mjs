// The AI SDK with its provider @ai-sdk/anthropic.

import { createAnthropic } from "@ai-sdk/anthropic";

import { serveModel } from "./lab_ai_sdk.mjs";

await serveModel((lab) => createAnthropic({ baseURL: `${lab.base}/v1`, apiKey: lab.key })(lab.model));
