// ollama-js over Ollama's API.

import { Ollama } from "ollama";

import { serve } from "./lab.mjs";

const client = (lab) => new Ollama({ host: lab.base, headers: { Authorization: `Bearer ${lab.key}` } });

await serve({
  async models(lab) {
    return (await client(lab).list()).models.map((model) => model.model);
  },
  async whole(lab, messages) {
    return (await client(lab).chat({ model: lab.model, messages })).message.content;
  },
  async *stream(lab, messages, signal) {
    const ollama = client(lab);
    signal?.addEventListener("abort", () => ollama.abort());
    for await (const part of await ollama.chat({ model: lab.model, messages, stream: true })) yield part.message.content;
  },
});
