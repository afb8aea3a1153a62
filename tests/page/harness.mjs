// Test harness: the real gateway in a temporary folder, with a shell script as a fake CLI, and a real browser.
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const { PAGE_BINARY: binary, PAGE_MODULES: modules, PATH } = process.env;
const browser = PATH.split(':').map(folder => join(folder, 'chromium')).find(path => existsSync(path));
export const { chromium } = createRequire(join(modules, 'x'))('playwright-core');

/** Longest wait for a condition; far more than any step takes. */
export const WAIT_TIMEOUT_MS = 15_000;

export const launch = () => chromium.launch({ executablePath: browser, args: ['--no-sandbox', '--disable-gpu'] });

/** Polls until the condition holds. `what` describes it for the error message. */
export async function until(what, condition) {
  const start = Date.now();
  while (!(await condition())) {
    if (Date.now() - start > WAIT_TIMEOUT_MS) throw new Error(`waited too long until ${what}`);
    await new Promise(resolve => setTimeout(resolve, 10));
  }
}

/* Steps of the fake CLI, as shell commands: output lines in the format of Claude Code, and synchronisation with the test. */
const SESSION = '0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f';
const line = value => `printf '%s\\n' '${JSON.stringify({ session_id: SESSION, ...value }).replaceAll("'", "'\\''")}'`;
export const begin = () => line({ type: 'system', subtype: 'init', model: 'fake', tools: [] });
const delta = fields => line({ type: 'stream_event', parent_tool_use_id: null, event: { type: 'content_block_delta', index: 0, delta: fields } });
export const text = text => delta({ type: 'text_delta', text });
export const thinking = thinking => delta({ type: 'thinking_delta', thinking });
export const tool = (id, name, input) => line({ type: 'assistant', message: { id: `m-${id}`, content: [{ type: 'tool_use', id, name, input }] } });
export const result = (id, content, is_error = false) =>
  line({ type: 'user', message: { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content, is_error }] } });
export const end = (result, is_error = false) =>
  line({ type: 'result', subtype: 'success', is_error, result, usage: { input_tokens: 1234, output_tokens: 56 } });
/** Waits until the test calls `gateway.resume(name)`. */
export const wait = name => `until [ -e "$markers/${name}" ]; do sleep 0.01; done`;
/** Tells the test that the scene has reached this step; see `gateway.reached(name)`. */
export const note = (name, value = '') => `echo "${value}" >"$markers/.${name}"; mv "$markers/.${name}" "$markers/${name}"`;
export const hang = `sleep 1000 & wait`;

const CLI = (markers, scenes) => `#!/bin/sh
markers='${markers}'
scene=$(tail -n 1)
echo "$scene" >>"$markers/messages"
if [ -f '${scenes}/'"$scene" ]; then . '${scenes}/'"$scene"; else . '${scenes}/.default'; fi
`;

/** Gateways that are running. A failed test leaves its gateway here, to be stopped at the end. */
const running = new Set();
export const stopAll = () => Promise.all([...running].map(gateway => gateway.stop()));

export class Gateway {
  /** Starts `trunkline serve` and waits until it listens. The fake CLI runs the scene whose name equals the message. */
  static async start({ models = ['scribe', 'other'], scenes = {}, env = {} } = {}) {
    const folder = mkdtempSync(join(tmpdir(), 'trunkline-page-'));
    const gateway = Object.assign(new Gateway(), { folder, markers: join(folder, 'markers'), env });
    for (const name of ['home', 'config', 'bin', 'markers', 'scenes', 'repo']) mkdirSync(join(folder, name));
    const all = { '.default': [begin(), text('I heard you.'), end('I heard you.')], ...scenes };
    for (const [name, steps] of Object.entries(all)) writeFileSync(join(folder, 'scenes', name), steps.join('\n') + '\n');
    const cli = join(folder, 'bin', 'claude');
    writeFileSync(cli, CLI(gateway.markers, join(folder, 'scenes')));
    chmodSync(cli, 0o755);
    const entry = { driver: 'claude', repoPath: join(folder, 'repo') };
    writeFileSync(join(folder, 'config', 'models.json'), JSON.stringify(Object.fromEntries(models.map(name => [name, entry]))));
    running.add(gateway);
    await gateway.listen();
    return gateway;
  }

  async listen() {
    const args = ['serve', '--port', this.port ?? '0', '--grace', '500ms'];
    for (const name of ['config', 'state', 'worktrees']) args.push(`--${name}`, join(this.folder, name));
    const env = { HOME: join(this.folder, 'home'), PATH: `${join(this.folder, 'bin')}:/usr/bin:/bin`, LANG: 'C.UTF-8', ...this.env };
    this.process = spawn(binary, args, { env, cwd: join(this.folder, 'repo'), stdio: ['ignore', 'pipe', 'pipe'] });
    this.log = '';
    this.process.stderr.on('data', data => { this.log += data });
    for await (const line of createInterface({ input: this.process.stdout })) {
      this.url = line.replace('listening on ', '');
      this.port = new URL(this.url).port;
      return;
    }
    throw new Error(`the gateway did not start to listen: ${this.log}`);
  }

  /** Lets a scene continue after `wait(name)`. */
  resume(name) { writeFileSync(join(this.markers, name), '') }

  /** Waits until a scene has reached `note(name)` and returns the value of the note. */
  async reached(name) {
    await until(`a scene has reached ${name}`, () => existsSync(join(this.markers, name)));
    return readFileSync(join(this.markers, name), 'utf8').trim();
  }

  /** Waits until a conversation is on disk, where a restarted gateway finds it. */
  async saved() {
    const chats = join(this.folder, 'state', 'chats');
    await until('a conversation is saved', () => existsSync(chats) && readdirSync(chats).some(name => name.endsWith('.json')));
  }

  async exited(pid) { await until(`process ${pid} has exited`, () => !existsSync(`/proc/${pid}`)) }

  async kill(signal = 'SIGKILL') {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = new Promise(resolve => this.process.once('exit', resolve));
    this.process.kill(signal);
    await exited;
  }

  async stop() {
    running.delete(this);
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
}

/** An isolated browser context (cookies, storage) with one page. Records every sign that the page ran foreign code. */
export class Visit {
  static async open(browser, url, { model = 'scribe', ...options } = {}) {
    const context = await browser.newContext({ viewport: { width: 1100, height: 760 }, ...options });
    const visit = Object.assign(new Visit(), { context, url, violations: [] });
    context.setDefaultTimeout(WAIT_TIMEOUT_MS);
    await context.exposeBinding('reportViolation', (_source, what) => { visit.violations.push(what) });
    await context.addInitScript(chosen => {
      for (const name of ['alert', 'confirm', 'prompt', 'open']) window[name] = () => window.reportViolation(`${name}() ran`);
      addEventListener('securitypolicyviolation', event => window.reportViolation(`policy: ${event.violatedDirective} ${event.blockedURI}`));
      if (chosen && !localStorage.getItem('trunkline.model')) localStorage.setItem('trunkline.model', chosen);
    }, model);
    context.on('request', request => { if (!request.url().startsWith(url) && !request.url().startsWith('data:')) visit.violations.push(`request: ${request.url()}`) });
    visit.page = await visit.tab();
    return visit;
  }

  async tab() {
    const page = await this.context.newPage();
    page.on('pageerror', error => this.violations.push(`error: ${error.message}`));
    await page.goto(this.url);
    await page.waitForFunction(() => document.querySelector('#empty, .user, dialog[open]'));
    return page;
  }

  async send(text) {
    await this.page.fill('#input', text);
    await this.page.press('#input', 'Enter');
  }

  /** Sends a message and waits until the answer is complete. */
  async ask(text) {
    await this.send(text);
    await this.idle();
  }

  async idle() { await this.page.waitForSelector('#send:not(.stop)') }

  async clear() {
    await this.page.click('#new');
    await this.page.click('#new');
    await this.page.waitForSelector('#empty');
  }

  get answer() { return this.page.locator('.answer').last() }

  /** Returns the conversation as the gateway has stored it. */
  async stored() { return await (await this.context.request.get(`${this.url}/chat`)).json() }

  /** Closes the browser. Fails if the page ran foreign code or sent a request to another server. */
  async close() {
    await this.context.close();
    if (this.violations.length) throw new Error(`the page ran foreign code: ${this.violations.join('; ')}`);
  }
}
