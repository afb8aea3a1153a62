// openai-agents for JavaScript over responses, its default.

import { Agent, OpenAIResponsesModel, Runner, setTracingDisabled, tool, user } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

import { relayDescription, serve } from "./lab.mjs";

setTracingDisabled(true);

function agent(lab, more) {
  const client = new OpenAI({
    baseURL: `${lab.base}/v1`,
    apiKey: lab.key,
    ...(lab.timeout && { timeout: lab.timeout * 1000 }),
  });
  return new Agent({ name: "Lab", model: new OpenAIResponsesModel(client, lab.model), ...more });
}

const runner = new Runner();

const tools = (relay) => [
  tool({ name: "relay", description: relayDescription, parameters: z.object({ text: z.string() }), execute: relay }),
];

const lighthouse = z.object({ keeper: z.string(), height: z.number().int(), lamps: z.array(z.string()) });

await serve({
  async whole(lab, messages) {
    return (await runner.run(agent(lab), messages.at(-1).content)).finalOutput;
  },
  async *stream(lab, messages, signal) {
    const result = await runner.run(agent(lab), messages.at(-1).content, { stream: true, signal });
    for await (const piece of result.toTextStream()) yield piece;
    await result.completed;
    if (result.error) throw result.error;
  },
  async memory(lab, prompts) {
    const first = await runner.run(agent(lab), prompts[0]);
    return (await runner.run(agent(lab), [...first.history, user(prompts[1])])).finalOutput;
  },
  async tools(lab, prompt, relay) {
    return (await runner.run(agent(lab, { tools: tools(relay) }), prompt)).finalOutput;
  },
  async schema(lab, prompt, relay) {
    const typed = agent(lab, { tools: tools(relay), outputType: lighthouse });
    return (await runner.run(typed, prompt)).finalOutput;
  },
});
