// anthropic-node over messages.

import Anthropic from "@anthropic-ai/sdk";

import { serve } from "./lab.mjs";

const client = (lab) =>
  new Anthropic({ baseURL: lab.base, apiKey: lab.key, ...(lab.timeout && { timeout: lab.timeout * 1000 }) });

const request = (lab, messages) => ({ model: lab.model, max_tokens: 1000, messages });

await serve({
  async models(lab) {
    const ids = [];
    for await (const model of client(lab).models.list()) ids.push(model.id);
    return ids;
  },
  async whole(lab, messages) {
    const message = await client(lab).messages.create(request(lab, messages));
    return message.content.map((block) => block.text ?? "").join("");
  },
  async *stream(lab, messages, signal) {
    const events = client(lab).messages.stream(request(lab, messages), { signal });
    for await (const event of events) if (event.type === "content_block_delta") yield event.delta.text;
    await events.finalMessage();
  },
});
