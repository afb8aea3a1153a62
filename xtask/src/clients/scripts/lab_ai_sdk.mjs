// What the scripts of the AI SDK share: a model is used in the same way whatever provider it is of.

import { generateText, streamText } from "ai";

import { serve } from "./lab.mjs";

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
  });
