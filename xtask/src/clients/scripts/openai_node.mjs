// openai-node over chat completions.

import OpenAI from "openai";

import { lighthouseSchema, relayDescription, relayParameters, serve } from "./lab.mjs";

const client = (lab) =>
  new OpenAI({ baseURL: `${lab.base}/v1`, apiKey: lab.key, ...(lab.timeout && { timeout: lab.timeout * 1000 }) });

await serve({
  async models(lab) {
    const ids = [];
    for await (const model of client(lab).models.list()) ids.push(model.id);
    return ids;
  },
  async whole(lab, messages) {
    const answer = await client(lab).chat.completions.create({ model: lab.model, messages });
    return answer.choices[0].message.content;
  },
  // The helper that checks the order of the chunks.
  async *stream(lab, messages, signal) {
    const chunks = client(lab).chat.completions.stream({ model: lab.model, messages }, { signal });
    for await (const chunk of chunks) yield chunk.choices[0]?.delta.content;
    await chunks.finalChatCompletion();
  },
  // The helper that runs functions.
  async tools(lab, prompt, relay) {
    const tool = {
      type: "function",
      function: { name: "relay", description: relayDescription, parameters: relayParameters, parse: JSON.parse, function: relay },
    };
    const messages = [{ role: "user", content: prompt }];
    return client(lab).chat.completions.runTools({ model: lab.model, messages, tools: [tool] }).finalContent();
  },
  async schema(lab, prompt) {
    const json_schema = { name: "lighthouse", schema: lighthouseSchema, strict: true };
    const messages = [{ role: "user", content: prompt }];
    const response_format = { type: "json_schema", json_schema };
    const answer = await client(lab).chat.completions.parse({ model: lab.model, messages, response_format });
    return answer.choices[0].message.parsed;
  },
});
