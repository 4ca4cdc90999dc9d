// Takes the screenshots of docs/images from `adtrail demo`: `node shots.mjs http://127.0.0.1:8080 FOLDER`.
import { PHONE, has, launch, open, saved } from './browser.mjs';

const [base, folder] = process.argv.slice(2);
const browser = await launch();
const style = process.env.PAGE_STYLE; // A style sheet to try without a build.

async function shoot(name, options, act, clip = {}) {
  const { page, end } = await open(browser, base, options);
  if (style) await page.route('**/assets/*.css', (route) => route.fulfill({ path: style, contentType: 'text/css' }));
  await act(page);
  await page.screenshot({ path: `${folder}/${name}.png`, ...clip });
  await end();
}

const first = `${base}/?app=demo-shop&timezone=UTC`;
const download = async (page) => {
  await page.goto(first);
  await saved(page, () => page.getByRole('button', { name: 'Download' }).click());
  await has(page, '#progress.complete', 'Complete');
};
const activation = async (page) => {
  await page.goto(`${base}/?app=demo-shop&type=activation&status=attributed&preset=own&fields=event_id&form=csv`);
  const id = await page.locator('#preview td').first().innerText();
  await page.goto(`${base}/activations?app=demo-shop&event_id=${encodeURIComponent(id)}`);
};
const device = async (page) => {
  await page.goto(`${base}/?app=demo-shop&type=effect&status=attributed&preset=own&fields=oaid,gaid&form=csv`);
  const ids = await page.locator('#preview td:first-child').allInnerTexts();
  await page.goto(`${base}/devices?app=demo-shop`);
  await page.getByLabel('Id, or its MD5').fill(ids.find((id) => id !== '') ?? '');
  await page.getByRole('button', { name: 'Look up' }).click();
  await has(page, '.events', 'activation');
};

const desk = { viewport: { width: 1200, height: 900 } };
const phone = { viewport: PHONE, deviceScaleFactor: 2 };
const tall = { viewport: { width: 1200, height: 980 } };
await shoot('export', tall, download);
await shoot('export-dark', { ...tall, colorScheme: 'dark' }, download);
await shoot('export-phone', phone, async (page) => {
  await page.goto(first);
  await page.locator('#expected').scrollIntoViewIfNeeded();
  await page.evaluate(() => document.querySelector('.result').scrollIntoView());
});
await shoot('activation', desk, activation);
if (process.env.PAGE_ALL) {
  for (const colorScheme of ['light', 'dark']) {
    await shoot(`full-${colorScheme}`, { ...desk, colorScheme }, (page) => page.goto(`${first}&preset=own&channel=toutiao`), { fullPage: true });
    await shoot(`wrong-${colorScheme}`, { ...desk, colorScheme }, (page) => page.goto(`${base}/?app=demo-shop&range=custom&from=2026-03-10&to=2026-03-09&timezone=Berlin`));
    await shoot(`sign-in-${colorScheme}`, { ...desk, colorScheme }, (page) => page.goto(`${base}/sign-in`));
    await shoot(`history-phone-${colorScheme}`, { ...phone, colorScheme }, (page) => page.goto(`${base}/exports`));
    await shoot(`activation-phone-${colorScheme}`, { ...phone, colorScheme }, activation);
    await shoot(`device-${colorScheme}`, { ...desk, colorScheme }, device);
  }
}
await browser.close();
