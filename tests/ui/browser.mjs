// A headless chromium and what the checks of the page share.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';

const require = createRequire(`${process.env.KURA_UI_MODULES}/`);
const { chromium } = require('playwright-core');
const execute = promisify(execFile);

/** What the test says: the page's address, and where screenshots go. */
export const { KURA_UI_URL: url, KURA_UI_PICTURES: pictures, KURA_UI_MOUNT: mount } = process.env;

/**
 * Opens the page and runs `check(page)`. Fails on anything that the page logs as an error, on a
 * request to anywhere else, and on a dialog: nothing of the page's data may run.
 */
export async function withPage(options, check) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    const context = await browser.newContext({ locale: 'en-GB', viewport: { width: 1280, height: 800 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    const troubles = [];
    const origin = new URL(url).origin;
    // A path that nothing has changed is answered with 404, which the browser writes down.
    const isTrouble = (message) => message.type() === 'error' && !message.text().includes('status of 404');
    page.on('console', (message) => isTrouble(message) && troubles.push(message.text()));
    page.on('pageerror', (error) => troubles.push(String(error)));
    page.on('dialog', (dialog) => { troubles.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on('request', (request) => request.url().startsWith(origin) || troubles.push(`asks ${request.url()}`));
    const begin = Date.now();
    await page.goto(url);
    await page.waitForSelector('body[data-ready]');
    const readyMilliseconds = Date.now() - begin;
    await check(page, { context, readyMilliseconds, troubles });
    assert.deepEqual(troubles, []);
  } finally {
    await browser.close();
  }
}

/** Runs `kura` and gives what it prints. */
export async function kura(...words) {
  const { stdout } = await execute(process.env.KURA_PROGRAM, words);
  return stdout.trim();
}

/** The row whose title is exactly this. */
export function row(page, title) {
  return page.locator('[role="option"]').filter({ has: page.getByText(title, { exact: true }) }).first();
}

/** Says that a check was made. */
export function done(name) {
  console.log(`ok ${name}`);
}
