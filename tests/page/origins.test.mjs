// Tests of pages of other origins in a real browser: what their scripts can request from the gateway, and what they can read.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { Gateway, begin, end, launch, stopAll, text } from './harness.mjs';

const KEY = 'key-of-the-page';

let browser, gateway, site, port;

before(async () => {
  browser = await launch();
  // One server is two origins: http://localhost:PORT and http://127.0.0.1:PORT.
  site = createServer((_request, response) => response.setHeader('content-type', 'text/html').end('<title>a page</title>'));
  await new Promise(resolve => site.listen(0, '127.0.0.1', resolve));
  port = site.address().port;
  const env = { TRUNKLINE_API_KEYS: KEY, TRUNKLINE_ALLOW_ORIGIN: `http://localhost:${port}` };
  gateway = await Gateway.start({ env, scenes: { hello: [begin(), text('Hello '), text('page.'), end('Hello page.')] } });
});
after(async () => {
  await browser?.close();
  site?.close();
  await stopAll();
});

/** Opens a page of an origin, and returns what a script on it gets from `fetch`: the answer, or the browser's error. */
async function fetched(origin, path, options = {}) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(origin);
    return await page.evaluate(async ([url, options]) => {
      try {
        const response = await fetch(url, options);
        const run = response.headers.get('x-trunkline-run');
        return { origin: location.origin, status: response.status, run, body: await response.text() };
      } catch (error) {
        return { origin: location.origin, error: String(error) };
      }
    }, [gateway.url + path, options]);
  } finally {
    await context.close();
  }
}

const chat = (stream, key = KEY) => ({
  method: 'POST',
  headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-stainless-lang': 'js' },
  body: JSON.stringify({ model: 'scribe', stream, messages: [{ role: 'user', content: 'hello' }] }),
});

test('a page of an allowed origin gets answers, streams and the headers of the gateway', async () => {
  const whole = await fetched(`http://localhost:${port}`, '/v1/chat/completions', chat(false));
  assert.equal(whole.origin, `http://localhost:${port}`);
  assert.equal(whole.status, 200, JSON.stringify(whole));
  assert.equal(JSON.parse(whole.body).choices[0].message.content, 'Hello page.');
  assert.match(whole.run, /^[0-9a-f-]{36}$/);
  const streamed = await fetched(`http://localhost:${port}`, '/v1/chat/completions', chat(true));
  assert.match(streamed.body, /Hello[\s\S]*page\.[\s\S]*\[DONE\]/);
  const cancelled = await fetched(`http://localhost:${port}`, `/v1/runs/${whole.run}`, { method: 'DELETE', headers: { 'x-api-key': KEY } });
  assert.equal(cancelled.status, 409, 'another method passes the preflight, and the run is over');
});

test('a page of an allowed origin can read why its key is refused', async () => {
  const refused = await fetched(`http://localhost:${port}`, '/v1/chat/completions', chat(false, 'wrong'));
  assert.equal(refused.status, 401, JSON.stringify(refused));
  assert.equal(JSON.parse(refused.body).error.code, 'invalid_api_key');
});

test('a page of a foreign origin reaches nothing, with a key or without', async () => {
  const runs = async () => (await (await fetch(`${gateway.url}/v1/runs`, { headers: { 'x-api-key': KEY } })).json()).data.length;
  const before = await runs();
  for (const options of [chat(false), chat(true), { method: 'POST', mode: 'no-cors', body: chat(false).body }, {}]) {
    const path = options.body ? '/v1/chat/completions' : '/v1/models';
    const reached = await fetched(`http://127.0.0.1:${port}`, path, options);
    assert.equal(reached.origin, `http://127.0.0.1:${port}`);
    assert.ok(reached.error || (reached.status === 0 && reached.body === ''), JSON.stringify(reached));
  }
  assert.equal(await runs(), before);
});

test('a page of an allowed origin cannot use the endpoints of the chat page', async () => {
  const reached = await fetched(`http://localhost:${port}`, '/chat', { headers: { authorization: `Bearer ${KEY}` } });
  assert.match(reached.error ?? '', /Failed to fetch/);
});
