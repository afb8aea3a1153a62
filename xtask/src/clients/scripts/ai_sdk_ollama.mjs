// The AI SDK with its provider ollama-ai-provider-v2.

import { createOllama } from "ollama-ai-provider-v2";

import { serveModel } from "./lab_ai_sdk.mjs";

await serveModel((lab) => createOllama({ baseURL: `${lab.base}/api`, headers: { Authorization: `Bearer ${lab.key}` } })(lab.model));
