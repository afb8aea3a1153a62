// What the scripts of the AI SDK share: a model is used in the same way whatever provider it is of.

import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { relayDescription, serve } from "./lab.mjs";

const lighthouse = z.object({ keeper: z.string(), height: z.number().int(), lamps: z.array(z.string()) });

const loop = (relay) => ({
  tools: { relay: tool({ description: relayDescription, inputSchema: z.object({ text: z.string() }), execute: relay }) },
  stopWhen: stepCountIs(5),
});

// `model(lab)` returns the model of a provider.
export const serveModel = (model) =>
  serve({
    async whole(lab, messages) {
      const limit = lab.timeout && { abortSignal: AbortSignal.timeout(lab.timeout * 1000) };
      return (await generateText({ model: model(lab), messages, ...limit })).text;
    },
    async *stream(lab, messages, abortSignal) {
      let failure;
      const onError = ({ error }) => (failure = error);
      yield* streamText({ model: model(lab), messages, abortSignal, onError }).textStream;
      if (failure) throw failure;
    },
    async tools(lab, prompt, relay) {
      const result = streamText({ model: model(lab), prompt, ...loop(relay) });
      return await result.text;
    },
    async schema(lab, prompt) {
      return (await generateObject({ model: model(lab), prompt, schema: lighthouse })).object;
    },
  });
