// The lab's side of a script for Node: reads cases from stdin, calls the client, prints what it shows.
//
// A script passes functions to `serve`. Each gets the request (`case`, `base`, `key`, `model`, `timeout`) first:
//
//     models(lab)                      names of the models
//     whole(lab, messages)             the answer; `messages` as in chat completions, the user's last
//     stream(lab, messages, signal)    an async iterable of the pieces of the answer; `signal` cancels the request
//     memory(lab, prompts)             the second answer; by default `whole` with the history in the messages
//     cancel(lab, messages)            the beginning of a stream that is then cancelled; by default by the signal of `stream`
//     tools(lab, prompt, relay)        the last answer of a conversation in which the model may call the function `relay`
//     schema(lab, prompt, relay)       an object of `lighthouse`; agents may offer `relay` to the model, too
//
// An exception is the error that the client's user would see.

import { createInterface } from "node:readline";

// JSON schemas for clients that take no types.
export const relayDescription = "Relays a text, and returns the reply.";
export const relayParameters = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
};
export const lighthouseSchema = {
  type: "object",
  properties: {
    keeper: { type: "string" },
    height: { type: "integer" },
    lamps: { type: "array", items: { type: "string" } },
  },
  required: ["keeper", "height", "lamps"],
  additionalProperties: false,
};

// Calls of the tool after which a case ends: the model asks for two.
const maxCalls = 4;

export async function serve({ models, whole, stream, memory, cancel, tools, schema }) {
  // Some clients print to stdout: it must not mix with the replies.
  const reply = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr);

  async function converse(lab) {
    if (memory) return memory(lab, lab.prompts);
    const messages = [];
    let text;
    for (const prompt of lab.prompts) {
      messages.push({ role: "user", content: prompt });
      text = await whole(lab, messages);
      messages.push({ role: "assistant", content: text });
    }
    return text;
  }

  async function cancelBySignal(lab, messages) {
    const controller = new AbortController();
    let first;
    try {
      for await (const piece of stream(lab, messages, controller.signal)) {
        first ??= piece || undefined;
        if (first) controller.abort();
      }
    } catch (error) {
      if (!first) throw error;
    }
    if (!first) throw new Error("the stream has ended without text");
    return first;
  }

  async function withRelay(lab, use) {
    const calls = [];
    const relay = ({ text }) => {
      calls.push(text);
      if (calls.length > maxCalls) throw new Error(`the tool was called with ${calls}`);
      return `${lab.token}-${text}`;
    };
    const detail = await use(lab, lab.prompts[0], relay);
    return { detail: typeof detail === "string" ? detail : JSON.stringify(detail), calls: calls.length };
  }

  async function perform(lab) {
    if (lab.case === "tools") return withRelay(lab, tools);
    if (lab.case === "schema") return withRelay(lab, schema);
    if (lab.case === "models") return { detail: (await models(lab)).join(" ") };
    if (lab.case === "memory") return { detail: await converse(lab) };
    const messages = [{ role: "user", content: lab.prompts[0] }];
    if (lab.case === "cancel") {
      const first = await (cancel ?? cancelBySignal)(lab, messages);
      return { detail: `cancelled after ${JSON.stringify(first)}` };
    }
    if (lab.case === "stream") {
      const pieces = [];
      for await (const piece of stream(lab, messages)) if (piece) pieces.push(piece);
      return { detail: pieces.join(""), deltas: pieces.length };
    }
    return { detail: await whole(lab, messages) };
  }

  for await (const line of createInterface({ input: process.stdin })) {
    const lab = JSON.parse(line);
    let result;
    try {
      result = { ok: true, ...(await perform(lab)) };
    } catch (error) {
      console.error(error);
      result = { ok: false, detail: describe(error) };
    }
    reply(`${JSON.stringify({ case: lab.case, ...result })}\n`);
  }
}

// The messages of an error and of its causes.
function describe(error) {
  const texts = [];
  for (let at = error; at && texts.length < 5; at = at.cause ?? at.lastError) texts.push(`${at.name}: ${at.message}`);
  return texts.join("; ");
}

// Late rejections of a cancelled request must not end the script.
process.on("unhandledRejection", (error) => console.error("unhandled:", error));
