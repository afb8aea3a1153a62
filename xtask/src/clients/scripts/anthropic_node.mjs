// anthropic-node over messages.

import Anthropic from "@anthropic-ai/sdk";

import { lighthouseSchema, relayDescription, relayParameters, serve } from "./lab.mjs";

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
  // Streamed, as agents do.
  async tools(lab, prompt, relay) {
    const tools = [{ name: "relay", description: relayDescription, input_schema: relayParameters }];
    const messages = [{ role: "user", content: prompt }];
    for (;;) {
      const message = await client(lab).messages.stream({ ...request(lab, messages), tools }).finalMessage();
      if (message.stop_reason !== "tool_use") return message.content.map((block) => block.text ?? "").join("");
      const calls = message.content.filter((block) => block.type === "tool_use");
      const results = calls.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: relay(input) }));
      messages.push({ role: "assistant", content: message.content }, { role: "user", content: results });
    }
  },
  async schema(lab, prompt) {
    const format = { type: "json_schema", schema: lighthouseSchema };
    const messages = [{ role: "user", content: prompt }];
    const message = await client(lab).messages.create({ ...request(lab, messages), output_config: { format } });
    return JSON.parse(message.content.map((block) => block.text ?? "").join(""));
  },
});
