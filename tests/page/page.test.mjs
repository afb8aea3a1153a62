// Tests of the chat page in a real browser, against the real gateway.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Gateway, Visit, begin, end, hang, launch, note, result, stopAll, text, thinking, tool, until, wait } from './harness.mjs';

const MARKDOWN = [
  '# One', 'a **bold** *em* _low_ ~~gone~~ `co<de>` snake_case_name 2 * 3 * 4', 'second line', '',
  '- one', '  - deep', '- two', '', '3. three', '4. four', '', '> quoted', '', '| a | b |', '|---|:-:|', '| 1 | `x\\|y` |', '',
  '```rust', 'fn main() { "<b>" }', '```', '', 'see [docs](https://example.org/a_b), <https://example.org> and https://example.org/x.', '',
  '---', '', '[mail](mailto:a@example.org) [no](ftp://example.org) ![pic](https://example.org/p.png)', '', '```', 'unfinished',
].join('\n');

const EVIL = [
  '<script>alert(1)</script>', '<img src=x onerror=alert(2)>', '<svg onload=alert(3)>', '[click](javascript:alert(4))',
  '[click](JaVaScRiPt:alert(5))', '[a](data:text/html,<script>alert(6)</script>)', '<a href="javascript:alert(7)">x</a>',
  '![x](javascript:alert(8))', '<javascript:alert(9)>', '[x](https://example.org/" onmouseover="alert(10))', '<iframe src=//evil.example>',
  '<style>@import "//evil.example"</style>', '[\tx](\tjavascript:alert(11))', '`<script>alert(12)</script>`', '</div></main><h1>out</h1>',
];
const evil = EVIL.join('\n\n');
const EVIL_MODEL = '<img src=x onerror=alert(13)>';

const SCENES = {
  grow: [begin(), text('one '), wait('grow-two'), text('two '), wait('grow-three'), text('three'), end('one two three')],
  said: [begin(), text('one '), text('two '), text('three'), end('one two three')],
  used: [begin(), tool('t1', 'Bash', { command: 'ls' }), result('t1', 'a.txt'), text('One file.'), end('One file.')],
  keyed: [begin(), text('half an'), hang],
  tools: [
    begin(), thinking('hm'), text('Looking.'), tool('t1', 'Bash', { command: 'ls -l' }), note('tools-running'), wait('tools-go'), result('t1', 'a.txt\nb.txt'),
    tool('t2', 'Read', { a: 'b', file_path: 'gone.txt' }), result('t2', 'no such file', true), text('Two files.'), end('Two files.'),
  ],
  hang: [begin(), note('hang-pid', '$$'), text('half an'), hang],
  reload: [begin(), note('reload-pid', '$$'), text('shown so far'), tool('t1', 'Bash', { command: 'sleep' }), hang],
  twice: [begin(), `[ -e "$markers/failed" ] && { ${text('better')}; ${end('better')}; exit 0; }`, note('failed'), end('Credit balance is too low <b>', true)],
  markdown: [begin(), text(MARKDOWN), end(MARKDOWN)],
  evil: [begin(), text(evil), tool('<b>', EVIL[1], { [EVIL[2]]: evil }), result('<b>', evil), thinking(evil), text(evil), end(evil)],
  'evil-error': [begin(), end(evil, true)],
  wide: [begin(), text('x'.repeat(3000) + '\n\n```\n' + 'y '.repeat(500) + '\n```\n\n| ' + 'cell | '.repeat(40) + '\n' + '|---'.repeat(40) + '|\n| ' + 'z | '.repeat(40)), tool('t1', 'A'.repeat(300), { command: 'w'.repeat(3000) }), result('t1', 'v'.repeat(3000)), end('done')],
  long: [begin(), text('line\n\n'.repeat(100)), wait('long-more'), text('more\n\n'.repeat(50)), wait('long-end'), end('done')],
  refuse: [begin(), text('working'), note('refuse'), wait('refuse-end'), end('working')],
  watched: [begin(), text('line\n\n'.repeat(100)), tool('t1', 'Bash', { command: 'ls' }), note('watched'), wait('watched-more'), result('t1', 'a.txt'), text('more'), wait('watched-end'), text(' and more'), end('more and more')],
  late: [begin(), text('Looking.'), tool('t1', 'Bash', { command: 'ls' }), tool('t1', 'Bash', { command: 'ls -l' }), result('t1', 'a.txt'), end('One file.')],
  titled: [begin(), text('working'), note('titled'), wait('titled-end'), end('working')],
  slow: [begin(), text('working'), note('slow'), wait('slow-end'), end('working')],
  dies: [begin(), text('before the end'), note('dies'), hang],
};

let browser, gateway;
before(async () => { [browser, gateway] = await Promise.all([launch(), Gateway.start({ models: ['scribe', 'other', EVIL_MODEL], scenes: SCENES })]) });
after(async () => { await browser?.close(); await stopAll() });

/** Defines a test with its own browser context. Every test also checks that the page ran no foreign code. */
function pageTest(name, options, body = options) {
  test(name, { timeout: 40_000 }, async () => {
    const visit = await Visit.open(browser, gateway.url, options === body ? {} : options);
    await body(visit, visit.page);
    await visit.close();
  });
}
const texts = locator => locator.allInnerTexts();

pageTest('title shows progress, and the outcome until the page gets the focus', async (visit, page) => {
  assert.equal(await page.title(), 'Trunkline');
  await visit.send('titled');
  await gateway.reached('titled');
  assert.equal(await page.title(), '⋯ titled – Trunkline');
  const setFocus = value => page.evaluate(value => { document.hasFocus = () => value }, value);
  await setFocus(false);
  gateway.resume('titled-end');
  await page.waitForFunction(() => document.title === '✓ titled – Trunkline');
  await page.evaluate(() => dispatchEvent(new Event('focus')));
  assert.equal(await page.title(), 'Trunkline');
  await visit.ask('evil-error');
  assert.match(await page.title(), /^✕ evil-error – /);
  await setFocus(true);
  await visit.ask('said');
  assert.equal(await page.title(), 'Trunkline', 'no outcome is shown while the page has the focus');
});

pageTest('answer appears while it is being written', async (visit, page) => {
  assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
  await visit.send('grow');
  const shown = visit.answer.locator('.text');
  for (const [needed, next] of [['one', 'grow-two'], ['one two', 'grow-three']]) {
    await shown.getByText(needed, { exact: true }).waitFor();
    assert.ok(await page.locator('#send.stop').isVisible());
    gateway.resume(next);
  }
  await visit.idle();
  assert.equal(await shown.innerText(), 'one two three');
  assert.match(await visit.answer.locator('.meta').innerText(), /^scribe · 1,234 tokens in, 56 out · [\d.]+ s$/);
  assert.deepEqual(await texts(page.locator('.user')), ['grow']);
});

pageTest('layout is read only a few times when many rows arrive at once', async (visit, page) => {
  const reads = await page.evaluate(async () => {
    let reads = 0;
    const height = Object.getOwnPropertyDescriptor(Element.prototype, 'scrollHeight').get;
    Object.defineProperty(document.getElementById('scroll'), 'scrollHeight', { get() { reads++; return height.call(this) } });
    document.getElementById('empty').remove();
    const answer = new Answer('');
    for (let id = 0; id < 200; id++) { answer.on('tool', { id, name: 'Bash', input: 'ls' }); answer.on('tool_result', { id, output: 'x', ok: true }) }
    answer.end();
    await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return reads;
  });
  assert.ok(reads > 0 && reads < 10, `${reads}`);
});

pageTest('tool call is a row that can be unfolded', async (visit, page) => {
  await visit.send('tools');
  await gateway.reached('tools-running');
  const rows = visit.answer.locator('details.tool');
  await rows.locator('.mark.running').waitFor();
  gateway.resume('tools-go');
  await visit.idle();
  assert.deepEqual(await rows.evaluateAll(all => all.map(row => row.querySelector('.mark').getAttribute('aria-label'))), ['done', 'failed']);
  assert.deepEqual(await texts(rows.locator('summary')), ['✓\nBash\nls -l', '✕\nRead\ngone.txt']);
  assert.equal(await rows.first().locator('pre').first().isVisible(), false);
  await rows.first().locator('summary').click();
  assert.deepEqual(await texts(rows.first().locator('pre')), ['{\n  "command": "ls -l"\n}', 'a.txt\nb.txt']);
  assert.deepEqual(await texts(visit.answer.locator('.text')), ['Looking.', 'Two files.']);
  assert.equal(await visit.answer.locator('.thought').count(), 1);
});

pageTest('conversation survives a reload and is deleted when cleared', async (visit, page) => {
  await visit.ask('hello');
  await visit.ask('hello again');
  const before = await texts(page.locator('#log .user, #log .text'));
  await page.reload();
  await page.waitForSelector('.meta >> nth=1');
  assert.deepEqual(await texts(page.locator('#log .user, #log .text')), before);
  assert.deepEqual(before, ['hello', 'I heard you.', 'hello again', 'I heard you.']);
  await page.click('#new');
  assert.equal(await page.innerText('#new'), 'Clear this chat?');
  assert.equal((await visit.stored()).items.length, 6, 'the first click only asks for confirmation');
  await page.click('#new');
  await page.waitForSelector('#empty');
  assert.deepEqual(await visit.stored(), { items: [], running: false });
  await page.reload();
  await page.waitForSelector('#empty');
});

pageTest('stopping kills the process and keeps the partial answer', async (visit, page) => {
  await visit.send('hang');
  const pid = await gateway.reached('hang-pid');
  await visit.answer.getByText('half an').waitFor();
  await page.click('#send');
  await visit.idle();
  await gateway.exited(pid);
  assert.deepEqual((await visit.stored()).items.map(item => item.type), ['user', 'text', 'interrupted']);
  assert.equal(await visit.answer.locator('.cutoff').innerText(), 'Interrupted');
  await visit.ask('hello');
  assert.equal(await visit.answer.locator('.text').innerText(), 'I heard you.');
});

pageTest('answer is marked as interrupted when the page is reloaded', async (visit, page) => {
  await visit.send('reload');
  const pid = await gateway.reached('reload-pid');
  await visit.answer.locator('.mark.running').waitFor();
  await page.reload();
  await gateway.exited(pid);
  await page.waitForSelector('.cutoff');
  assert.deepEqual(await texts(page.locator('.text')), ['shown so far']);
  assert.equal(await page.locator('.mark').getAttribute('aria-label'), 'not finished');
});

pageTest('conversations of two browsers are separate', async visit => {
  const other = await Visit.open(browser, gateway.url);
  await visit.ask('mine');
  await other.ask('theirs');
  for (const [one, said] of [[visit, 'mine'], [other, 'theirs']]) {
    await one.page.reload();
    await one.page.waitForSelector('.meta');
    assert.deepEqual(await texts(one.page.locator('.user')), [said]);
  }
  await other.clear();
  assert.equal((await visit.stored()).items.length, 3);
  await other.close();
});

const refreshed = page => page.waitForResponse(response => response.url().endsWith('/chat') && response.request().method() === 'GET');
/** Makes the page reload the stored conversation, as it does when its tab becomes visible. */
async function refresh(page) {
  await Promise.all([refreshed(page), page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')))]);
  await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

pageTest('second tab waits while an answer is in progress in the first', async (visit, page) => {
  await visit.send('slow');
  await gateway.reached('slow');
  const second = await visit.tab();
  await second.getByText('An answer is being written in another window').waitFor();
  await second.fill('#input', 'me too');
  await second.press('#input', 'Enter');
  assert.equal(await second.isDisabled('#send'), true);
  assert.equal(await second.inputValue('#input'), 'me too', 'the message stays in the input');
  gateway.resume('slow-end');
  await visit.idle();
  await second.locator('#send:enabled').click();
  await second.locator('.text', { hasText: 'I heard you.' }).waitFor();
  assert.deepEqual((await visit.stored()).items.filter(item => item.type === 'user').map(item => item.text), ['slow', 'me too']);
});

pageTest('question is kept when the gateway rejects it', async (visit, page) => {
  await visit.send('refuse');
  await gateway.reached('refuse');
  const second = await visit.tab();
  await second.waitForSelector('.busy');
  // As if the second tab did not know yet about the answer in the first.
  await second.evaluate(() => { busyElsewhere = false; input.value = 'me too'; document.getElementById('composer').requestSubmit() });
  await second.locator('.error[data-code=answer_running]').waitFor();
  for (let times = 0; times < 2; times++) await refreshed(second);
  assert.deepEqual(await texts(second.locator('.user')), ['refuse', 'me too']);
  assert.equal(await second.inputValue('#input'), 'me too');
  assert.doesNotMatch(await second.innerText('.error'), /POST/);
  gateway.resume('refuse-end');
  await visit.idle();
  await second.waitForSelector('#send:enabled');
  await second.click('.again');
  await second.locator('.text', { hasText: 'I heard you.' }).waitFor();
  assert.equal(await second.inputValue('#input'), '');
  assert.deepEqual(await texts(second.locator('.user')), ['refuse', 'me too']);
  assert.deepEqual((await visit.stored()).items.filter(item => item.type === 'user').map(item => item.text), ['refuse', 'me too']);
});

pageTest('scroll position and unfolded rows are kept while another tab gets an answer', async (visit, page) => {
  await visit.send('watched');
  await gateway.reached('watched');
  const second = await visit.tab();
  await second.locator('.mark.running').waitFor();
  await second.locator('.tool summary').click();
  const top = () => second.evaluate(() => document.querySelector('main').scrollTop);
  await until('the page is scrolled to the end', async () => await top() > 0);
  await second.evaluate(() => { document.querySelector('main').scrollTop = 0 });
  await second.waitForSelector('#jump:not([hidden])');
  gateway.resume('watched-more');
  await second.locator('.text p', { hasText: /^more$/ }).waitFor();
  assert.deepEqual(await texts(second.locator('.tool pre')), ['{\n  "command": "ls"\n}', 'a.txt']);
  gateway.resume('watched-end');
  await second.waitForSelector('.meta');
  assert.equal(await top(), 0);
  assert.equal(await second.locator('.tool[open]').count(), 1);
  assert.equal(await second.locator('.busy').count(), 0);
  assert.ok(await page.locator('.text').evaluateAll((all, other) => all.map(one => one.textContent).join() === other, (await second.locator('.text').allTextContents()).join()));
});

pageTest('conversation is replaced when another tab has started a new one', async (visit, page) => {
  await visit.ask('hello');
  await page.evaluate(() => { document.querySelector('.answer').title = 'old' });
  await refresh(page);
  assert.equal(await page.locator('[title=old]').count(), 1, 'nothing has changed');
  const second = await visit.tab();
  for (const id of ['new', 'new']) await second.click(`#${id}`);
  await second.waitForSelector('#empty');
  await second.fill('#input', 'hello');
  await second.press('#input', 'Enter');
  await second.waitForSelector('.meta');
  await refresh(page);
  assert.equal(await page.locator('[title=old]').count(), 0);
  assert.deepEqual(await texts(page.locator('.user')), ['hello']);
});

pageTest('nothing is sent before the conversation is loaded', async (visit, page) => {
  await visit.ask('hello');
  const second = await visit.context.newPage();
  let release;
  const held = new Promise(resolve => { release = resolve });
  await second.route('**/chat', async route => { if (route.request().method() === 'GET') await held; await route.continue() });
  await second.goto(visit.url);
  await second.waitForSelector('#model option', { state: 'attached' });
  await second.fill('#input', 'quick');
  await second.press('#input', 'Enter');
  assert.equal(await second.inputValue('#input'), 'quick');
  release();
  await second.locator('#send:enabled').click();
  await second.waitForSelector('.meta >> nth=1');
  assert.deepEqual(await texts(second.locator('.user')), ['hello', 'quick']);
});

pageTest('error shows the reason and can be retried', async (visit, page) => {
  await visit.ask('twice');
  assert.match(await visit.answer.locator('.error .why').innerText(), /too low <b>$/);
  await visit.answer.locator('.again').click();
  await visit.answer.locator('.text', { hasText: 'better' }).waitFor();
  await visit.idle();
  assert.deepEqual((await visit.stored()).items.map(item => item.type), ['user', 'error', 'user', 'text', 'done']);
});

pageTest('error is shown and the question kept when the gateway dies', async (visit, page) => {
  const other = await Gateway.start({ scenes: SCENES });
  const otherVisit = await Visit.open(browser, other.url);
  await otherVisit.send('dies');
  await other.reached('dies');
  await otherVisit.answer.getByText('before the end').waitFor();
  await other.saved();
  await other.kill();
  await otherVisit.answer.locator('.error').waitFor();
  await otherVisit.idle();
  await other.listen();
  await otherVisit.page.reload();
  await otherVisit.page.waitForSelector('.cutoff');
  assert.deepEqual(await texts(otherVisit.page.locator('.user')), ['dies']);
  await otherVisit.close();
  await other.stop();
});

pageTest('question is kept when the gateway cannot be reached', async (visit, page) => {
  const other = await Gateway.start({ scenes: SCENES });
  const otherVisit = await Visit.open(browser, other.url);
  await otherVisit.ask('hello');
  await other.kill();
  await otherVisit.send('are you there?');
  await otherVisit.answer.locator('.error').waitFor();
  await otherVisit.idle();
  await other.listen();
  await refresh(otherVisit.page);
  assert.deepEqual(await texts(otherVisit.page.locator('.user')), ['hello', 'are you there?']);
  assert.equal(await otherVisit.page.inputValue('#input'), 'are you there?');
  await otherVisit.page.press('#input', 'Enter');
  await otherVisit.page.waitForSelector('.meta >> nth=1');
  assert.deepEqual(await texts(otherVisit.page.locator('.user')), ['hello', 'are you there?']);
  assert.equal(await otherVisit.page.locator('.error').count(), 0);
  await otherVisit.close();
  await other.stop();
});

pageTest('answer is shown when it arrives only with the result', async (visit, page) => {
  await visit.ask('late');
  const shown = async () => [await texts(visit.answer.locator('.text')), await visit.answer.locator('.mark').evaluateAll(all => all.map(mark => mark.getAttribute('aria-label')))];
  const expected = [['Looking.', 'One file.'], ['not finished', 'done']];
  assert.deepEqual(await shown(), expected);
  await page.reload();
  await page.waitForSelector('.meta');
  assert.deepEqual(await shown(), expected);
});

pageTest('markdown is rendered as elements', async (visit, page) => {
  await visit.ask('markdown');
  const at = selector => visit.answer.locator(`.text ${selector}`);
  for (const [selector, expected] of [
    ['h1', ['One']], ['strong', ['bold']], ['em', ['em', 'low']], ['del', ['gone']], ['p > code', ['co<de>']], ['blockquote', ['quoted']],
    ['ul > li > ul > li', ['deep']], ['ol > li', ['three', 'four']], ['th', ['a', 'b']], ['td', ['1', 'x|y']], ['pre', ['fn main() { "<b>" }', 'unfinished']],
    ['.code > div > span', ['rust', 'text']],
  ]) assert.deepEqual(await texts(at(selector)), expected, selector);
  assert.equal(await at('ol').getAttribute('start'), '3');
  assert.match(await at('p').first().innerText(), /snake_case_name 2 \* 3 \* 4\nsecond line$/);
  const links = await at('a').evaluateAll(all => all.map(a => [a.getAttribute('href'), a.rel, a.target]));
  const safe = href => [href, 'noopener noreferrer', '_blank'];
  assert.deepEqual(links, ['https://example.org/a_b', 'https://example.org/', 'https://example.org/x', 'mailto:a@example.org', 'https://example.org/p.png'].map(safe));
  await visit.context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: gateway.url });
  await at('.copy').first().click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'fn main() { "<b>" }');
});

pageTest('incremental rendering of markdown equals rendering at once', async (visit, page) => {
  const differing = await page.evaluate(source => {
    const whole = document.createElement('div');
    draw(whole, source);
    const grown = document.createElement('div');
    for (let end = 1; end <= source.length; end++) draw(grown, source.slice(0, end));
    return whole.isEqualNode(grown) ? null : grown.textContent;
  }, MARKDOWN);
  assert.equal(differing, null);
});

pageTest('lists keep their nesting and code its indentation', async (visit, page) => {
  const drawn = source => page.evaluate(source => {
    const outline = el => el.matches('.code') ? [el.querySelector('code').textContent] : [...el.childNodes].flatMap(node => node.nodeType === 3 ? [node.data] : node.matches('br') ? [] : [[node.localName, ...outline(node)]]);
    const el = document.createElement('div');
    draw(el, source);
    return outline(el);
  }, source);
  const li = (...inside) => ['li', ...inside], ul = (...items) => ['ul', ...items], ol = (...items) => ['ol', ...items], code = text => ['div', text];
  for (const [source, expected] of [
    ['- a\n  - b\n    - c\n      - d', [ul(li('a', ul(li('b', ul(li('c', ul(li('d'))))))))]],
    ['- a\n    - b\n        - c\n- d', [ul(li('a', ul(li('b', ul(li('c'))))), li('d'))]],
    ['1. a\n  - b\n    - c\n2. d', [ol(li('a', ul(li('b', ul(li('c'))))), li('d'))]],
    ['- a\n\t- b\n\t\t- c', [ul(li('a', ul(li('b', ul(li('c'))))))]],
    ['1. a\n   ```py\n   def f():\n       if x:\n\n\n           return 1\n   ```\n2. b', [ol(li('a', code('def f():\n    if x:\n\n\n        return 1')), li('b'))]],
    ['- a\n  ```\n  x:\n  \ty\n  ```', [ul(li('a', code('x:\n\ty')))]],
    ['- ```\n  x\n    - y\n  ```', [ul(li(code('x\n  - y')))]],
    ['  ```\n  a\n    b\n c\n  ```', [code('a\n  b\nc')]],
    ['# C#\n## a ##\n### #', [['h1', 'C#'], ['h2', 'a'], ['h3']]],
  ]) assert.deepEqual(await drawn(source), expected, source);
});

pageTest('addresses end before punctuation, and links are not nested', async (visit, page) => {
  const links = source => page.evaluate(source => {
    const el = document.createElement('div');
    draw(el, source);
    return [...el.querySelectorAll('a')].map(a => [a.getAttribute('href'), a.textContent]);
  }, source);
  const foo = 'https://example.org/Foo_(bar)';
  for (const [source, expected] of [
    ['[https://a.example/](https://b.example/)', [['https://b.example/', 'https://a.example/']]],
    ['[**https://a.example/**](https://b.example/)', [['https://b.example/', 'https://a.example/']]],
    [`[wiki](${foo}).`, [[foo, 'wiki']]],
    [`see ${foo}, (or ${foo}).`, [[foo, foo], [foo, foo]]],
    ['[no](https://a.example/\n)', [['https://a.example/', 'https://a.example/']]],
  ]) assert.deepEqual(await links(source), expected, source);
});

pageTest('text direction follows the content', async (visit, page) => {
  await visit.ask('مرحبا');
  const directions = await page.evaluate(() => {
    const el = document.createElement('div');
    document.body.append(el);
    draw(el, 'مرحبا\n\n- عنصر\n\nhello');
    return [document.querySelector('.user'), ...el.querySelectorAll('p, li')].map(one => getComputedStyle(one).direction);
  });
  assert.deepEqual(directions, ['rtl', 'rtl', 'rtl', 'ltr']);
});

pageTest('hostile markdown is rendered in bounded time', async (visit, page) => {
  const slowest = await page.evaluate(() => {
    const long = ['# ' + '#'.repeat(60000) + 'x', '# ' + ' '.repeat(60000) + 'x', '```' + ' '.repeat(60000) + '`', '- ' + ' '.repeat(60000) + '\u2028', 'a' + ' '.repeat(60000) + 'b\nc', 'a|b\n-' + ' '.repeat(60000) + 'x|', '- a' + '\n'.repeat(60000) + 'b'];
    const bombs = ['*', '**a', '_a ', '`', '``a', '[', '![', '[a](', '<', '~~', '> ', '>', '- ', '* a\n  ', '|', '|-', 'http://', '\\', '#', '    - a\n'];
    const times = [...bombs.map(bomb => bomb.repeat(20000)), ...long].map(bomb => { const start = performance.now(); draw(document.createElement('div'), bomb); return [performance.now() - start, bomb.slice(0, 10)] });
    return times.sort((a, b) => b[0] - a[0])[0];
  });
  assert.ok(slowest[0] < 2000, `${slowest}`);
});

pageTest('output of a model is never executed', async (visit, page) => {
  for (const scene of ['evil', 'evil-error']) await visit.ask(scene);
  for (const details of await page.locator('details').all()) await details.locator('summary').click();
  await page.reload();
  await page.waitForSelector('.error');
  await page.selectOption('#model', EVIL_MODEL);
  await visit.ask(EVIL[0]);
  await visit.clear();
  const found = await page.evaluate(() => [...document.querySelectorAll('#log *, #model *')].flatMap(el => [...el.attributes].map(attribute => `${el.localName} ${attribute.name}`)));
  assert.ok(!found.some(name => / on|^img|^iframe|^script| src$/.test(name)), `${found}`);
  assert.equal(await page.locator('[data-model]').filter({ hasText: EVIL_MODEL }).count(), 1);
});

pageTest('links of a model are only web and mail addresses', async (visit, page) => {
  await visit.ask('evil');
  const addresses = await visit.answer.locator('a').evaluateAll(all => all.map(a => a.protocol));
  assert.ok(addresses.length > 0 && addresses.every(protocol => ['http:', 'https:', 'mailto:'].includes(protocol)), `${addresses}`);
});

test('harness detects foreign code in the page', async () => {
  const visit = await Visit.open(browser, gateway.url);
  await visit.page.evaluate(() => {
    const script = document.createElement('script');
    try { script.textContent = 'alert(1)' } catch {}
    const image = document.createElement('img');
    image.setAttribute('src', 'http://127.0.0.1:9/x.png');
    document.body.append(script, image);
  });
  await until('the content security policy has reported both violations', () => visit.violations.some(one => one.startsWith('policy: img-src')) && visit.violations.some(one => one.startsWith('policy: require-trusted-types-for')));
  await visit.page.evaluate(() => alert(1));
  await until('the alert is reported', () => visit.violations.includes('alert() ran'));
  await assert.rejects(visit.close(), /foreign code/);
});

for (const [name, viewport] of [['a phone', { width: 360, height: 640 }], ['a zoomed page', { width: 640, height: 400 }]]) {
  pageTest(`${name} shows everything without horizontal scrolling`, { viewport }, async (visit, page) => {
    const sideways = () => page.evaluate(() => [document.documentElement, document.querySelector('main')].some(el => el.scrollWidth > el.clientWidth));
    assert.equal(await sideways(), false);
    await visit.ask('wide');
    await visit.answer.locator('details').evaluateAll(all => all.forEach(one => { one.open = true }));
    assert.equal(await sideways(), false);
    for (const id of ['input', 'send', 'model', 'new', 'theme', 'help']) {
      const box = await page.locator(`#${id}`).boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= viewport.width && box.y + box.height <= viewport.height, `${id} ${JSON.stringify(box)}`);
    }
  });
}

pageTest('everything can be done with the keyboard', async (visit, page) => {
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.localName);
  const keys = page.keyboard;
  await keys.press('?');
  await page.waitForSelector('#keys[open]');
  await keys.press('Escape');
  await page.waitForSelector('#keys:not([open])', { state: 'attached' });
  await page.focus('#input');
  await keys.type('first');
  await keys.press('Shift+Enter');
  await keys.type('second');
  await keys.press('Enter');
  await page.waitForSelector('.meta');
  assert.equal(await page.innerText('.user'), 'first\nsecond');
  await keys.type('keyed');
  await keys.press('Enter');
  await visit.answer.getByText('half an').waitFor();
  await keys.press('Escape');
  await visit.answer.locator('.cutoff').waitFor();
  await visit.idle();
  await keys.press('ArrowUp');
  assert.equal(await page.inputValue('#input'), 'keyed');
  await keys.press('ArrowUp');
  assert.equal(await page.inputValue('#input'), 'first\nsecond');
  for (const expected of ['keyed', '']) { await keys.press('ArrowDown'); assert.equal(await page.inputValue('#input'), expected) }
  await keys.press('Control+k');
  assert.equal(await focused(), 'model');
  await keys.press('Escape');
  const reached = new Set();
  for (let step = 0; step < 30; step++) { await keys.press('Tab'); reached.add(await focused()) }
  for (const id of ['input', 'model', 'new', 'theme', 'help']) assert.ok(reached.has(id), `${id}: ${[...reached]}`);
  await visit.ask('used');
  await visit.answer.locator('summary').focus();
  await keys.press('Enter');
  assert.ok(await visit.answer.locator('.tool pre').first().isVisible());
});

pageTest('chosen model is saved', async (visit, page) => {
  assert.deepEqual((await page.locator('#model option').allTextContents()).filter(name => name !== 'agent'), ['scribe', 'other', EVIL_MODEL]);
  await page.locator('[data-model=other]').click();
  assert.equal(await page.inputValue('#model'), 'other');
  assert.equal(await page.getAttribute('#input', 'placeholder'), 'Ask other…');
  await visit.ask('hello');
  assert.equal((await visit.stored()).items[0].model, 'other');
  await page.reload();
  await page.waitForSelector('.meta');
  assert.equal(await page.inputValue('#model'), 'other');
});

const ground = page => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
pageTest('theme follows the system until the user chooses one', { colorScheme: 'light' }, async (visit, page) => {
  const light = await ground(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await ground(page);
  assert.notEqual(light, dark);
  await page.click('#theme');
  assert.equal(await ground(page), light);
  await page.reload();
  await page.waitForSelector('#empty');
  assert.equal(await ground(page), light);
});

for (const colorScheme of ['light', 'dark']) {
  pageTest(`${colorScheme} theme has enough contrast`, { colorScheme }, async (visit, page) => {
    const poor = await page.evaluate(() => {
      const style = getComputedStyle(document.documentElement);
      const shade = name => {
        const hex = style.getPropertyValue('--' + name).trim();
        const [r, g, b] = [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16) / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = ([a, b]) => (Math.max(shade(a), shade(b)) + 0.05) / (Math.min(shade(a), shade(b)) + 0.05);
      const pairs = ['text', 'soft', 'accent', 'bad', 'good'].flatMap(ink => ['ground', 'raised', 'sunk'].map(paper => [ink, paper]));
      pairs.push(['on-accent', 'accent'], ['text', 'tint'], ['bad', 'bad-tint'], ['text', 'bad-tint'], ['ground', 'text']);
      return pairs.map(pair => [...pair, contrast(pair)]).filter(([, , found]) => !(found >= 4.5));
    });
    assert.deepEqual(poor, []);
  });
}

pageTest('screen readers announce an answer once, when it is complete', async (visit, page) => {
  await page.evaluate(() => {
    window.announced = [];
    new MutationObserver(() => { const text = document.getElementById('live').textContent; if (text) window.announced.push(text) }).observe(document.getElementById('live'), { childList: true });
  });
  await visit.ask('said');
  await page.waitForFunction(() => window.announced.length);
  assert.deepEqual(await page.evaluate(() => window.announced), ['Answer: one two three']);
  const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select, textarea')].filter(el => !(el.textContent.trim() || el.getAttribute('aria-label') || el.closest('label'))).map(el => el.id));
  assert.deepEqual(unnamed, []);
});

pageTest('page scrolls to the end unless the reader has scrolled up', async (visit, page) => {
  const fromEnd = () => page.evaluate(() => { const main = document.querySelector('main'); return main.scrollHeight - main.scrollTop - main.clientHeight });
  await visit.send('long');
  await until('the page is scrolled to the end', async () => await visit.answer.locator('p').count() === 100 && await fromEnd() < 2);
  await page.evaluate(() => { document.querySelector('main').scrollTop = 0 });
  await page.waitForSelector('#jump:not([hidden])');
  gateway.resume('long-more');
  await until('more text has arrived', async () => await visit.answer.locator('p').count() === 150);
  assert.equal(await page.evaluate(() => document.querySelector('main').scrollTop), 0);
  await page.click('#jump');
  await until('the page is scrolled to the end again', async () => await fromEnd() < 2);
  await page.waitForSelector('#jump', { state: 'hidden' });
  gateway.resume('long-end');
  await visit.idle();
});

test('page asks for a key when the gateway requires one', { timeout: 40_000 }, async () => {
  const locked = await Gateway.start({ scenes: SCENES, env: { TRUNKLINE_API_KEYS: 'open-sesame,other-key' } });
  const visit = await Visit.open(browser, locked.url);
  const { page } = visit;
  const give = async (key, remember) => {
    await page.waitForSelector('#door[open]');
    await page.fill('#key', key);
    await page.setChecked('#remember', remember);
    await page.press('#key', 'Enter');
  };
  const stored = () => page.evaluate(() => [sessionStorage.getItem('trunkline.key'), localStorage.getItem('trunkline.key')]);
  await give('“quoted”', true);
  assert.equal(await page.locator('#key:invalid').count(), 1, 'the key is not valid in a header');
  await give('wrong', true);
  await page.getByText('That key was not accepted').waitFor();
  assert.deepEqual(await stored(), [null, null]);
  await page.keyboard.press('Escape');
  await page.click('.again:has-text("Enter a key")');
  await give('open-sesame', false);
  await page.waitForSelector('#empty');
  assert.deepEqual(await stored(), ['open-sesame', null]);
  await visit.ask('hello');
  await page.reload();
  await page.waitForSelector('.meta');
  await page.evaluate(() => sessionStorage.clear());
  await page.reload();
  await give('other-key', true);
  await page.waitForSelector('#empty');
  assert.deepEqual(await stored(), [null, 'other-key'], 'the conversation of the other key is not shown');
  const second = await visit.tab();
  await second.waitForSelector('#empty');
  await page.evaluate(() => localStorage.setItem('trunkline.key', 'sk-“quoted”'));
  await page.reload();
  await give('open-sesame', false);
  await page.waitForSelector('.meta');
  locked.env = { TRUNKLINE_API_KEYS: 'other-key' };
  await locked.kill('SIGTERM');
  await locked.listen();
  await visit.send('and now?');
  await give('other-key', false);
  await page.locator('.why', { hasText: 'This key belongs to another conversation' }).waitFor();
  await until('the old conversation is gone', async () => (await texts(page.locator('.user'))).join() === 'and now?');
  await page.press('#input', 'Enter');
  await page.waitForSelector('.meta');
  assert.deepEqual(await texts(page.locator('.user')), ['and now?']);
  await visit.close();
  await locked.stop();
});
