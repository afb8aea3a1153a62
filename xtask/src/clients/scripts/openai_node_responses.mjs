// openai-node over responses; the second turn names the first response.

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
    return (await client(lab).responses.create({ model: lab.model, input: messages })).output_text;
  },
  async *stream(lab, messages, signal) {
    const events = client(lab).responses.stream({ model: lab.model, input: messages }, { signal });
    for await (const event of events) if (event.type === "response.output_text.delta") yield event.delta;
    if (!(await events.finalResponse()).output_text) throw new Error("the final response has no text");
  },
  async memory(lab, prompts) {
    const openai = client(lab);
    const first = await openai.responses.create({ model: lab.model, input: prompts[0] });
    const second = { model: lab.model, input: prompts[1], previous_response_id: first.id };
    return (await openai.responses.create(second)).output_text;
  },
  // With the whole conversation in each request.
  async tools(lab, prompt, relay) {
    const tool = { type: "function", name: "relay", description: relayDescription, parameters: relayParameters, strict: true };
    const input = [{ role: "user", content: prompt }];
    for (;;) {
      const response = await client(lab).responses.create({ model: lab.model, input, tools: [tool], store: false });
      const calls = response.output.filter((item) => item.type === "function_call");
      if (calls.length === 0) return response.output_text;
      input.push(...response.output);
      for (const { call_id, arguments: given } of calls)
        input.push({ type: "function_call_output", call_id, output: relay(JSON.parse(given)) });
    }
  },
  async schema(lab, prompt) {
    const format = { type: "json_schema", name: "lighthouse", schema: lighthouseSchema, strict: true };
    return (await client(lab).responses.parse({ model: lab.model, input: prompt, text: { format } })).output_parsed;
  },
});
