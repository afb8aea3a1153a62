// A web page in Chromium that calls the gateway with `fetch`. The page has an origin that the gateway allows. A page of a foreign
// origin tries to list the models and to chat, before the allowed one does; neither may reach anything.

import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { serve } from "./lab.mjs";

// One server has two origins. The lab starts the gateway with `--allow-origin http://localhost:*`.
const site = createServer((_request, reply) => {
  reply.setHeader("content-type", "text/html");
  reply.end("<!doctype html><title>a page</title>");
});
await once(site.listen(0, "127.0.0.1"), "listening");
const executablePath = process.env.PATH.split(":").map((folder) => join(folder, "chromium")).find(existsSync);
if (!executablePath) throw new Error("Chromium is not installed");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });

async function open(host) {
  const page = await browser.newPage();
  await page.goto(`http://${host}:${site.address().port}/`);
  return page;
}

const [allowed, foreign] = [await open("localhost"), await open("127.0.0.1")];

// Runs in a page.
async function list({ base, key }) {
  const reply = await fetch(`${base}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  return (await reply.json()).data.map((model) => model.id);
}

// Runs in a page. Returns the pieces of the answer; of a stream that is to be cancelled, only the first.
async function ask({ base, key, timeout, body, cancels }) {
  const controller = new AbortController();
  if (timeout) setTimeout(() => controller.abort(), timeout * 1000);
  const reply = await fetch(`${base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: controller.signal,
  });
  if (!reply.ok) throw new Error(`${reply.status} ${(await reply.json()).error.message}`);
  if (!reply.headers.get("x-trunkline-run")) throw new Error("the page cannot read the header x-trunkline-run");
  if (!body.stream) return [(await reply.json()).choices[0].message.content];
  const pieces = [];
  let rest = "";
  for await (const text of reply.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((line) => line.startsWith("data: {"))) {
      const chunk = JSON.parse(line.slice("data: ".length));
      if (chunk.error) throw new Error(chunk.error.message);
      const piece = chunk.choices[0]?.delta.content;
      if (piece) pieces.push(piece);
      if (piece && cancels) {
        controller.abort();
        return pieces;
      }
    }
  }
  return pieces;
}

const request = ({ base, key, timeout, model }, messages, stream) => ({ base, key, timeout, body: { model, messages, stream } });

async function refused(attempt) {
  const error = await attempt.then(() => undefined, (error) => error);
  if (!error) throw new Error("a page of a foreign origin gets an answer");
  if (!error.message.includes("Failed to fetch")) throw error;
}

await serve({
  async models(lab) {
    await refused(foreign.evaluate(list, lab));
    return allowed.evaluate(list, lab);
  },
  async whole(lab, messages) {
    // The lab counts the runs: the foreign page must not start one.
    if (lab.case === "whole") await refused(foreign.evaluate(ask, request(lab, messages, false)));
    return (await allowed.evaluate(ask, request(lab, messages, false))).join("");
  },
  async *stream(lab, messages) {
    yield* await allowed.evaluate(ask, request(lab, messages, true));
  },
  async cancel(lab, messages) {
    return (await allowed.evaluate(ask, { ...request(lab, messages, true), cancels: true })).join("");
  },
});
// The pages would keep the script alive after its last case.
await browser.close();
site.close();
