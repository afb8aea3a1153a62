// ollama-js over Ollama's API.

import { Ollama } from "ollama";

import { lighthouseSchema, relayDescription, relayParameters, serve } from "./lab.mjs";

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
  async tools(lab, prompt, relay) {
    const definition = { name: "relay", description: relayDescription, parameters: relayParameters };
    const tools = [{ type: "function", function: definition }];
    const messages = [{ role: "user", content: prompt }];
    for (;;) {
      const { message } = await client(lab).chat({ model: lab.model, messages, tools });
      if (!message.tool_calls?.length) return message.content;
      messages.push(message);
      for (const call of message.tool_calls)
        messages.push({ role: "tool", tool_name: call.function.name, content: relay(call.function.arguments) });
    }
  },
  async schema(lab, prompt) {
    const messages = [{ role: "user", content: prompt }];
    return JSON.parse((await client(lab).chat({ model: lab.model, messages, format: lighthouseSchema })).message.content);
  },
});
