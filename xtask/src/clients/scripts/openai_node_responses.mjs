// openai-node over responses; the second turn names the first response.

import OpenAI from "openai";

import { serve } from "./lab.mjs";

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
});
