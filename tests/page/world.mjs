// The real gateway in a world of its own, with a shell script that plays a CLI, and a browser to look at it.
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const { PAGE_BINARY: binary, PAGE_MODULES: modules, PATH } = process.env;
const browser = PATH.split(':').map(folder => join(folder, 'chromium')).find(path => existsSync(path));
export const { chromium } = createRequire(join(modules, 'x'))('playwright-core');

/** Nothing takes this long, unless it never comes. */
export const PATIENCE = 15_000;

export const launch = () => chromium.launch({ executablePath: browser, args: ['--no-sandbox', '--disable-gpu'] });

/** Looks often until something is so. */
export async function until(what, happened) {
  const start = Date.now();
  while (!(await happened())) {
    if (Date.now() - start > PATIENCE) throw new Error(`waited too long until ${what}`);
    await new Promise(resolve => setTimeout(resolve, 10));
  }
}

/* What the fake CLI does, as data: lines in Claude Code's words, and waits. */
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
export const wait = name => `until [ -e "$seen/${name}" ]; do sleep 0.01; done`;
export const note = (name, value = '') => `echo "${value}" >"$seen/.${name}"; mv "$seen/.${name}" "$seen/${name}"`;
export const hang = `sleep 1000 & wait`;

const CLI = (seen, scenes) => `#!/bin/sh
seen='${seen}'
scene=$(tail -n 1)
echo "$scene" >>"$seen/asked"
if [ -f '${scenes}/'"$scene" ]; then . '${scenes}/'"$scene"; else . '${scenes}/.default'; fi
`;

/** Every gateway that was started and not stopped: a test that fails leaves its own. */
const running = new Set();
export const stopAll = () => Promise.all([...running].map(gateway => gateway.stop()));

export class Gateway {
  /** Starts `trunkline serve` and waits until it listens. A scene is played for the message of its name. */
  static async start({ models = ['scribe', 'other'], scenes = {}, env = {} } = {}) {
    const folder = mkdtempSync(join(tmpdir(), 'trunkline-page-'));
    const gateway = Object.assign(new Gateway(), { folder, seen: join(folder, 'seen'), env });
    for (const name of ['home', 'config', 'bin', 'seen', 'scenes', 'repo']) mkdirSync(join(folder, name));
    const all = { '.default': [begin(), text('I heard you.'), end('I heard you.')], ...scenes };
    for (const [name, steps] of Object.entries(all)) writeFileSync(join(folder, 'scenes', name), steps.join('\n') + '\n');
    const cli = join(folder, 'bin', 'claude');
    writeFileSync(cli, CLI(gateway.seen, join(folder, 'scenes')));
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
    for await (const said of createInterface({ input: this.process.stdout })) {
      this.url = said.replace('listening on ', '');
      this.port = new URL(this.url).port;
      return;
    }
    throw new Error(`the gateway does not listen: ${this.log}`);
  }

  /** Lets a scene go on. */
  tell(name) { writeFileSync(join(this.seen, name), '') }

  /** What a scene noted, once it has. */
  async told(name) {
    await until(`a scene told ${name}`, () => existsSync(join(this.seen, name)));
    return readFileSync(join(this.seen, name), 'utf8').trim();
  }

  /** Waits until a question is on disk, where a killed gateway finds it again. */
  async saved() {
    const chats = join(this.folder, 'state', 'chats');
    await until('a conversation is saved', () => existsSync(chats) && readdirSync(chats).some(name => name.endsWith('.json')));
  }

  async gone(pid) { await until(`${pid} is gone`, () => !existsSync(`/proc/${pid}`)) }

  async kill(signal = 'SIGKILL') {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise(resolve => this.process.once('exit', resolve));
    this.process.kill(signal);
    await ended;
  }

  async stop() {
    running.delete(this);
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
}

/** A browser of its own (cookies, storage) with one page, and everything that would show that a page was tricked. */
export class Visit {
  static async open(browser, url, { model = 'scribe', ...options } = {}) {
    const context = await browser.newContext({ viewport: { width: 1100, height: 760 }, ...options });
    const visit = Object.assign(new Visit(), { context, url, harm: [] });
    context.setDefaultTimeout(PATIENCE);
    await context.exposeBinding('harmed', (_source, what) => { visit.harm.push(what) });
    await context.addInitScript(chosen => {
      for (const name of ['alert', 'confirm', 'prompt', 'open']) window[name] = () => window.harmed(`${name}() ran`);
      addEventListener('securitypolicyviolation', event => window.harmed(`policy: ${event.violatedDirective} ${event.blockedURI}`));
      if (chosen && !localStorage.getItem('trunkline.model')) localStorage.setItem('trunkline.model', chosen);
    }, model);
    context.on('request', request => { if (!request.url().startsWith(url) && !request.url().startsWith('data:')) visit.harm.push(`request: ${request.url()}`) });
    visit.page = await visit.tab();
    return visit;
  }

  async tab() {
    const page = await this.context.newPage();
    page.on('pageerror', error => this.harm.push(`error: ${error.message}`));
    await page.goto(this.url);
    await page.waitForFunction(() => document.querySelector('#empty, .user, dialog[open]'));
    return page;
  }

  async send(text) {
    await this.page.fill('#input', text);
    await this.page.press('#input', 'Enter');
  }

  /** Sends and waits for the end of the answer. */
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

  async kept() { return await (await this.context.request.get(`${this.url}/chat`)).json() }

  /** Fails if the page ran what it should not have, or asked anybody else. */
  async close() {
    await this.context.close();
    if (this.harm.length) throw new Error(`the page was harmed: ${this.harm.join('; ')}`);
  }
}
