// The page of one workspace: timeline, commit, file, keys, hostile names, going back, colours, width.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { done, kura, mount, pictures, row, url, withPage } from './browser.mjs';

const text = (locator) => locator.innerText();
const focusedIs = (page, selector) => page.waitForFunction((wanted) => document.activeElement?.matches(wanted), selector);

await withPage({ colorScheme: 'light' }, async (page, { context, troubles }) => {
  assert.equal(new URL(page.url()).hash.includes('token'), false, 'the token is out of the address');
  assert.equal(page.url().includes(new URL(url).hash.slice(7)), false);
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, 'Strict']);
  done('the token leaves the address and becomes a cookie that scripts cannot read');

  const titles = await page.locator('[role="option"] .title').allInnerTexts();
  assert.deepEqual(titles.slice(0, 6), ['Not committed yet', 'hostile', 'binary, mode, rename', 'Denied: doomed.txt', 'second step', 'first step']);
  assert.equal(await text(row(page, 'second step').locator('.who')), 'agent-b');
  assert.equal(await text(row(page, 'second step').locator('.run')), 'run nightly · step 2');
  assert.equal(await text(row(page, 'second step').locator('.counts')), '+1\n~1\n−1');
  assert.match(await row(page, 'second step').locator('time').getAttribute('title'), /\d{4}-\d\d-\d\dT.*Z$/);
  assert.equal(await text(row(page, 'Denied: doomed.txt').locator('.who')), 'intern');
  await row(page, 'Denied: doomed.txt').click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'Denied: doomed.txt');
  assert.match(await text(page.locator('.facts')), /intern[^]*content[^]*doomed.txt/);
  await page.locator('#filter-what').selectOption('denials');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length === 1);
  await page.locator('#filter-what').selectOption('commits');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length === 5);
  await page.locator('#filter-clear').click();
  await page.waitForSelector('.row.kind-denied');
  done('the timeline has who, run, step, counts and exact times');

  await row(page, 'second step').click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'second step');
  const files = page.locator('.file-toggle');
  assert.deepEqual(await files.locator('.path').allInnerTexts(), ['doomed.txt', 'fresh.txt', 'notes.txt']);
  assert.deepEqual(await files.locator('.sign').allInnerTexts(), ['D', 'A', 'M']);
  const notes = page.locator('.file').filter({ hasText: 'notes.txt' });
  assert.deepEqual(await notes.locator('.code.plus .text').allInnerTexts(), ['two, changed']);
  assert.deepEqual(await notes.locator('.code.minus .text').allInnerTexts(), ['two']);
  await page.screenshot({ path: `${pictures}/commit-light.png` });
  done('a commit shows its paths and lines');

  await row(page, 'binary, mode, rename').click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'binary, mode, rename');
  const all = await text(page.locator('.changes'));
  for (const wanted of ['binary', 'mode 0644 → 0755', 'old name.txt → new name.txt', '→ notes.txt']) assert.ok(all.includes(wanted), `${wanted} in ${all}`);
  done('binary content, modes, renames and links are told');

  await page.locator('.file').filter({ hasText: 'run.sh' }).locator('.history').click();
  await page.waitForSelector('.history-list');
  assert.deepEqual(await page.locator('.history-list .title').allInnerTexts(), ['binary, mode, rename', 'first step']);
  await page.locator('.history-row').nth(1).click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'first step');
  await focusedIs(page, '[data-file="trun.sh"]');
  done('a file shows its history, and that leads back to commits');

  await row(page, 'hostile').click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'hostile');
  const names = await page.locator('.file .path').allInnerTexts();
  assert.ok(names.includes('<img src=x onerror=alert(1)>'), String(names));
  assert.ok(names.includes('line\\nbreak'), String(names));
  assert.ok(names.includes('abc\\u{202e}txt.exe'), String(names));
  assert.ok(names.includes('bad\\xff'), String(names));
  assert.equal(await page.locator('.details-pane img, .timeline img, .details-pane script').count(), 0);
  assert.ok((await text(page.locator('.hunks').first())).includes('<script>alert(2)</script>'));
  assert.deepEqual(troubles, []);
  await page.screenshot({ path: `${pictures}/hostile.png` });
  done('hostile names, messages and content are only text');

  // With keys only, from here on.
  await page.keyboard.press('Escape');
  await focusedIs(page, '#timeline');
  await page.keyboard.press('Home');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('k');
  const active = await page.locator('#timeline').getAttribute('aria-activedescendant');
  assert.equal(await text(page.locator(`[id="${active}"] .title`)), 'second step');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'second step');
  await focusedIs(page, '.details-pane h2');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await focusedIs(page, '[data-file="tnotes.txt"]');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('[data-file="tnotes.txt"]').getAttribute('aria-expanded'), 'false');
  await page.keyboard.press('h');
  await page.waitForSelector('.history-list');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'second step');
  await page.keyboard.press('Escape');
  await focusedIs(page, '#timeline');
  await page.keyboard.press('?');
  await page.waitForSelector('#help-dialog[open]');
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await focusedIs(page, '#filter-path');
  await page.keyboard.type('notes.txt');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length === 2);
  await page.keyboard.press('Escape');
  await page.locator('#filter-clear').click();
  await page.locator('#filter-run').fill('nightly');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length === 2);
  await page.locator('#filter-run').fill('');
  await page.locator('#filter-by').fill('agent-b');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length === 1);
  await page.locator('#filter-by').fill('');
  await page.locator('#filter-path').fill('no such path');
  await page.waitForFunction(() => document.getElementById('timeline-end').textContent === 'Nothing fits the filter.');
  await page.locator('#filter-clear').click();
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length > 4);
  done('everything is reached with keys; filters by path, run and principal');

  // Going back, on a live mount with work that is not committed.
  await page.waitForSelector('.row.kind-live');
  await row(page, 'first step').click();
  await page.waitForFunction(() => document.querySelector('.details-pane h2')?.textContent === 'first step');
  await page.keyboard.press('r');
  await page.waitForSelector('#revert-dialog [data-action="confirm"]:enabled');
  const plan = await text(page.locator('#revert-dialog'));
  for (const wanted of ['would change', 'doomed.txt', 'seen at once in', '1 path with changes that are not committed']) assert.ok(plan.includes(wanted), `${wanted} in ${plan}`);
  assert.equal(await readFile(`${mount}/notes.txt`, 'utf8'), 'one\ntwo, changed\nthree\n', 'a preview changes nothing');
  await page.screenshot({ path: `${pictures}/plan.png` });
  await page.locator('#revert-dialog [data-action="confirm"]').click();
  await page.waitForSelector('#toast [data-action="undo"]');
  assert.equal(await readFile(`${mount}/notes.txt`, 'utf8'), 'one\ntwo\nthree\n');
  assert.equal(await readFile(`${mount}/doomed.txt`, 'utf8'), 'doomed\n');
  await page.waitForSelector('.row.kind-rollback');
  await page.waitForSelector('.row.kind-rescue');
  await page.screenshot({ path: `${pictures}/rolled-back.png` });
  await focusedIs(page, '#toast [data-action="undo"]');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('toast').textContent.startsWith('Undone'));
  assert.equal(await readFile(`${mount}/notes.txt`, 'utf8'), 'one\ntwo, changed\nthree\n');
  assert.equal(await readFile(`${mount}/uncommitted.txt`, 'utf8'), 'not yet\n');
  done('going back: preview, on the live mount, undone again');

  await kura('commit', 'demo', '-m', 'nothing new').catch(() => {});
  await page.locator('#toast button').last().click();
  for (const [scheme, name] of [['light', 'light'], ['dark', 'dark']]) {
    await page.emulateMedia({ colorScheme: scheme });
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const [red] = ground.match(/\d+/g).map(Number);
    assert.equal(red > 128, scheme === 'light', ground);
    await row(page, 'second step').click();
    await page.waitForSelector('.hunks');
    await page.screenshot({ path: `${pictures}/${name}.png` });
  }
  await page.keyboard.press('t');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.keyboard.press('t');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  const light = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(light, 'rgb(246, 247, 249)', 'light was chosen against a dark system');
  await page.keyboard.press('t');
  done('dark and light: as the system, and as chosen');

  await page.setViewportSize({ width: 400, height: 800 });
  const widths = () => page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.equal(await page.locator('.timeline-pane').isVisible(), false);
  let [width, inner] = await widths();
  assert.ok(width <= inner, `${width} > ${inner}`);
  await page.screenshot({ path: `${pictures}/narrow-commit.png` });
  await page.locator('.back').click();
  await page.locator('.timeline-pane').waitFor({ state: 'visible' });
  [width, inner] = await widths();
  assert.ok(width <= inner, `${width} > ${inner}`);
  await page.screenshot({ path: `${pictures}/narrow.png` });
  done('one pane at a time on 400 pixels');

  await page.setViewportSize({ width: 1280, height: 800 });
  await page.reload();
  await page.waitForSelector('body[data-ready]');
  done('a reload stays in');
  const second = await context.newPage();
  await second.goto(url);
  await second.waitForSelector('.error');
  assert.match(await text(second.locator('.error')), /lets in once/);
  await second.close();
  done('the link lets in once');
});
