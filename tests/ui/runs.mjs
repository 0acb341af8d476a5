// Runs: the commands of a commit, the lines of a file, a run with its steps, taking it out.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { done, mount, pictures, row, withPage } from './browser.mjs';

const text = (locator) => locator.innerText();
const title = (page, wanted) => page.waitForFunction((words) => document.querySelector('.details-pane h2')?.textContent.startsWith(words), wanted);

await withPage({}, async (page) => {
  await page.locator('.row').filter({ hasText: 'run r1 · step 1' }).click();
  await page.waitForSelector('.commands');
  const commands = await text(page.locator('.commands'));
  assert.ok(commands.includes('$ sed -i s/0.19/0.2/ total.js'), commands);
  const file = page.locator('.file').filter({ has: page.locator('[data-file="ttotal.js"]') });
  assert.ok((await text(file)).includes('$ sed -i s/0.19/0.2/ total.js'), 'the file says which command changed it');
  await page.screenshot({ path: `${pictures}/commands.png` });
  done('a commit shows the commands that made it');

  await file.locator('.history').click();
  await page.waitForSelector('.blame-lines .code');
  const lines = await page.locator('.blame-lines .text').allInnerTexts();
  assert.deepEqual(lines, ['export const tax = 0.2;', 'export const name = "shop";']);
  assert.equal(await page.locator('.blame-lines .origin button').count(), 2, 'two lines from two commits');
  await page.screenshot({ path: `${pictures}/lines.png` });
  await page.locator('.blame-lines .origin button').nth(1).click();
  await title(page, 'first version');
  done('a file shows where its lines come from');

  await page.locator('.row').filter({ hasText: 'run r1 · step 1' }).click();
  await page.locator('.facts .link').filter({ hasText: 'run r1' }).click();
  await title(page, 'Run r1');
  const steps = await text(page.locator('.commands'));
  assert.match(steps, /step 1[^]*sh -c[^]*ok[^]*step 2[^]*exit 3/);
  await page.screenshot({ path: `${pictures}/run.png` });
  await page.locator('[data-action="take-out"]').click();
  await page.waitForSelector('#revert-dialog [data-action="confirm"]:enabled');
  const plan = await text(page.locator('.plan-changes'));
  assert.ok(plan.includes('total.js') && plan.includes('made.txt') && !plan.includes('later.txt'), plan);
  await page.locator('#revert-dialog [data-action="confirm"]').click();
  await page.waitForSelector('#toast [data-action="undo"]');
  assert.match(await readFile(`${mount}/total.js`, 'utf8'), /0\.19/);
  assert.equal(existsSync(`${mount}/made.txt`), false);
  assert.equal(await readFile(`${mount}/later.txt`, 'utf8'), 'later\n', 'the work of others stays');
  await page.locator('#toast [data-action="undo"]').click();
  await page.waitForFunction(() => document.getElementById('toast').textContent.startsWith('Undone'));
  assert.match(await readFile(`${mount}/total.js`, 'utf8'), /0\.2;/);
  await row(page, 'later work').waitFor();
  done('a run shows its steps, is taken out and comes back');
});
