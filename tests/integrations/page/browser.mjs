// A browser with checks that always apply: nothing is loaded from elsewhere, no page violates its policy, and no script
// fails.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(`${process.env.PAGE_MODULES}/`));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

export const PHONE = { width: 360, height: 740 };
const DEADLINE_MS = 60_000;

export async function launch() {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'],
  });
}

// Opens a page in a context of its own. `end` closes it and fails if anything went wrong in it.
export async function open(browser, base, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  const wrong = [];
  context.on('request', (request) => {
    const is_ours = request.url().startsWith(`${base}/`) || request.url().startsWith('data:');
    if (!is_ours) wrong.push(`requested ${request.url()}`);
  });
  page.on('pageerror', (error) => wrong.push(`script: ${error}`));
  page.on('console', (message) => {
    // Responses with 400 or 404 are logged too; tests check what they show.
    const is_status = message.text().startsWith('Failed to load resource: the server responded');
    if (message.type() === 'error' && !is_status) wrong.push(`console: ${message.text()}`);
  });
  const end = async () => {
    await context.close();
    assert.deepEqual(wrong, []);
  };
  return { context, page, end };
}

export async function texts(page, selector) {
  const texts = await page.locator(selector).allInnerTexts();
  return texts.map((text) => text.replace(/\s+/g, ' ').trim());
}

export async function has(page, selector, text) {
  await page.locator(selector).filter({ hasText: text }).first().waitFor();
}

// Returns the bytes, name and checksum of the file that `begin` downloads.
export async function saved(page, begin) {
  const [download] = await Promise.all([page.waitForEvent('download'), begin()]);
  const failure = await download.failure();
  assert.equal(failure, null);
  const bytes = readFileSync(await download.path());
  return { bytes, name: download.suggestedFilename(), sha256: sha256(bytes) };
}

export function sha256(bytes) {
  return createHash('sha256').update(bytes).digest('hex');
}

export function lines(bytes) {
  return bytes.toString('utf8').trimEnd().split('\n').length;
}

// Checks WCAG 2.2 AA and best practices.
export async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  const problems = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(' | ')}`);
  assert.deepEqual(problems, [], what);
}

// Returns whether a text is visible somewhere on the page without being cut off.
export async function legible(page, text) {
  return page.evaluate((text) => {
    const has = [...document.querySelectorAll('#main *')].filter((element) => element.textContent.includes(text));
    const inner = has.filter((element) => ![...element.children].some((child) => has.includes(child)));
    const is_cut = (element) => element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== 'auto';
    const is_shown = (element) => element.checkVisibility() && element.localName !== 'option';
    const is_block = (element) => getComputedStyle(element).display !== 'inline';
    const block = (element) => (is_block(element) ? element : block(element.parentElement));
    return inner.some((element) => is_shown(element) && !is_cut(block(element)));
  }, text);
}

// Checks that nothing makes the page wider than the screen.
export async function fits(page, what) {
  const [width, screen] = await page.evaluate(() => [
    document.scrollingElement.scrollWidth,
    document.documentElement.clientWidth,
  ]);
  assert.ok(width <= screen, `${what}: ${width} on ${screen}`);
}

// Presses Tab until the element has the focus.
export async function tabTo(page, selector) {
  for (let presses = 0; presses < 150; presses += 1) {
    await page.keyboard.press('Tab');
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
  }
  assert.fail(`the keyboard does not reach ${selector}`);
}
