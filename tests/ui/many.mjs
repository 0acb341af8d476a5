// Ten thousand commits: the page can be used within two seconds, and the oldest is reached.

import assert from 'node:assert/strict';
import { done, pictures, row, withPage } from './browser.mjs';

await withPage({}, async (page, { readyMilliseconds }) => {
  assert.ok(readyMilliseconds < 2000, `${readyMilliseconds} ms until the page could be used`);
  const rows = await page.locator('[role="option"]').count();
  assert.ok(rows >= 50 && rows <= 400, `${rows} rows at the beginning`);
  const begin = Date.now();
  await row(page, 'commit 9999').click();
  await page.waitForSelector('.hunks');
  assert.ok(Date.now() - begin < 2000, `${Date.now() - begin} ms for a commit`);
  done(`used within ${readyMilliseconds} ms`);

  await page.keyboard.press('Escape');
  const scrolled = Date.now();
  await page.evaluate(() => document.getElementById('scroller').scrollTo(0, 1e9));
  await page.waitForFunction((count) => document.querySelectorAll('[role="option"]').length > count, rows);
  assert.ok(Date.now() - scrolled < 2000, `${Date.now() - scrolled} ms for the next part`);
  const jumped = Date.now();
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.querySelectorAll('[role="option"]').length >= 10_000, undefined, { timeout: 20_000 });
  await page.waitForFunction(() => document.querySelector('.row.active')?.textContent.includes('Workspace made'));
  const last = Date.now() - jumped;
  await page.keyboard.press('k');
  const active = await page.locator('#timeline').getAttribute('aria-activedescendant');
  assert.match(await page.locator(`[id="${active}"] .title`).innerText(), /commit 1$/);
  await page.screenshot({ path: `${pictures}/many.png` });
  done(`the oldest of ${await page.locator('[role="option"]').count()} within ${last} ms`);
});
