// Drives the page through the tasks of users. `node drive.mjs TASKS FACTS`: the names of tasks, and facts about the
// service as JSON. Prints the name of each task that is completed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';

import { PHONE, accessible, fits, has, launch, legible, lines, open, saved, sha256, tabTo, texts } from './browser.mjs';

const [tasks, facts] = [process.argv[2], JSON.parse(process.argv[3])];
const { base } = facts;

const all = {
  // Choose app, days, time zone, types, columns and file format; see rows, size, preview and chart.
  async choose(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/`);
    await page.getByLabel('App', { exact: true }).selectOption('app-x');
    await page.getByLabel('Yesterday').check();
    await page.getByRole('button', { name: 'Preview' }).click();
    await has(page, '#rows', `${facts.yesterday} rows`);
    for (const [name, rows] of [['Last 7 days', facts.last7], ['This month', facts.month]]) {
      await page.getByLabel(name).check();
      await page.getByRole('button', { name: 'Preview' }).click();
      await has(page, '#rows', `${rows} rows`);
    }
    // The days of a custom range are hidden until it is chosen.
    assert.equal(await page.locator('#from').isVisible(), false);
    await page.getByLabel('Custom range').check();
    await page.getByLabel('From').fill(facts.first_day);
    await page.getByLabel('To (inclusive)').fill(facts.last_day);
    await page.getByRole('button', { name: 'Preview' }).click();
    await has(page, '#rows', `${facts.all} rows`);
    await page.getByLabel('Time zone').fill('Asia/Shanghai');
    await page.getByLabel('Installs').check();
    await page.getByRole('button', { name: 'Preview' }).click();
    await has(page, '#rows', `${facts.installs} rows`);
    await has(page, '#expected', 'Asia/Shanghai');
    assert.match(page.url(), /timezone=Asia%2FShanghai.*type=activation/);
    // The last of the elements that are counted below.
    await page.locator('#preview tbody tr').nth(49).waitFor();
    const [bars, legend] = [page.locator('svg .bar'), await texts(page, '.legend li')];
    assert.equal(await bars.count(), facts.days);
    assert.deepEqual(legend, facts.legend);
    await page.getByText('As a table').click();
    const totals = (await texts(page, '.numbers tbody td:last-child')).map(Number);
    assert.equal(totals.reduce((sum, rows) => sum + rows), facts.installs);
    assert.equal((await texts(page, '#preview tbody tr')).length, 50);
    assert.equal((await texts(page, '#preview thead th')).length, 50);
    assert.ok((await texts(page, '#preview tbody td')).some((cell) => cell.includes('+08:00') || /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(cell)));
    // Selected columns only, in the format for programs.
    await page.getByLabel('Selected columns').check();
    const ticked = page.locator('.tick input:checked');
    while (await ticked.count()) await ticked.first().uncheck();
    await page.getByLabel('event_id', { exact: true }).check();
    await page.getByLabel('channel', { exact: true }).check();
    await page.getByLabel('CSV for programs').check();
    await page.getByRole('button', { name: 'Preview' }).click();
    // The previous page has these two columns as well, among others.
    await page.locator('#preview thead th').nth(2).waitFor({ state: 'detached' });
    await has(page, '#preview thead', 'channel');
    assert.deepEqual(await texts(page, '#preview thead th'), ['event_id', 'channel']);
    // Back leads to the previous page.
    await page.goBack();
    assert.equal((await texts(page, '#preview thead th')).length, 50);
    await end();
  },

  // Invalid fields are marked, and no input is lost.
  async mistakes(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/?app=app-x&range=yesterday`);
    await page.getByLabel('Time zone').fill('Asia/Shangai');
    await page.getByText('Filter rows').click();
    await page.locator('#status').fill('lost');
    await page.getByRole('button', { name: 'Preview' }).click();
    await has(page, '#timezone-wrong', 'Asia/Shanghai');
    await has(page, '#status-wrong', 'attributed');
    assert.equal(await page.getByLabel('Time zone').inputValue(), 'Asia/Shangai');
    assert.equal(await page.locator('#status').getAttribute('aria-invalid'), 'true');
    assert.equal(await page.locator('#range-yesterday').isChecked(), true);
    await accessible(page, 'mistakes');
    await end();
  },

  // Download with JavaScript: progress, then rows and checksum; twice from the same page.
  async download(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/?${facts.custom}&form=csv`);
    const button = page.getByRole('button', { name: 'Download' });
    const sums = [];
    for (let time = 0; time < 2; time += 1) {
      const file = await saved(page, () => button.click());
      assert.equal(file.name, facts.file);
      assert.equal(lines(file.bytes), facts.all + 1);
      await has(page, '#progress.complete', file.sha256);
      await has(page, '#progress', `${facts.all} rows`);
      sums.push(file.sha256);
    }
    assert.equal(sums[0], sums[1]);
    // After a change of the form the button downloads the changed export.
    await page.getByLabel('Installs').check();
    await has(page, '#changed', 'The form has changed');
    const file = await saved(page, () => button.click());
    assert.equal(lines(file.bytes), facts.installs + 1);
    await has(page, '#progress.complete', file.sha256);
    await page.getByRole('link', { name: 'History' }).click();
    await has(page, '.exports > li:nth-child(3) .sum', sums[0]);
    const shown = await texts(page, '.exports li .sum');
    assert.deepEqual(shown.slice(0, 3), [file.sha256, sums[0], sums[0]]);
    await has(page, '.exports li .state', `Complete, ${facts.installs} rows`);
    const again = await saved(page, () => page.getByRole('link', { name: /Download again/ }).first().click());
    assert.deepEqual([again.sha256, again.name], [file.sha256, file.name]);
    await page.getByRole('link', { name: /Open in the form/ }).first().click();
    await has(page, '#rows', `${facts.installs} rows`);
    const by_form = await saved(page, () => page.getByRole('button', { name: 'Download' }).click());
    assert.equal(by_form.sha256, file.sha256);
    await end();
  },

  // Download without JavaScript.
  async plain(browser) {
    const { page, end } = await open(browser, base, { javaScriptEnabled: false });
    await page.goto(`${base}/?app=app-x`);
    await page.getByLabel('Custom range').check();
    await page.getByLabel('From').fill(facts.first_day);
    await page.getByLabel('To (inclusive)').fill(facts.last_day);
    await page.getByLabel('JSON lines').check();
    const file = await saved(page, () => page.getByRole('button', { name: 'Download' }).click());
    assert.equal(lines(file.bytes), facts.all);
    await page.goto(`${base}/exports`);
    assert.equal((await texts(page, '.exports li .sum'))[0], file.sha256);
    assert.equal(await page.getByRole('button', { name: 'Copy' }).count(), 0);
    await end();
  },

  // The command works as printed.
  async command(browser) {
    const { context, page, end } = await open(browser, base);
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base });
    await page.goto(`${base}/?${facts.custom}&form=excel&type=effect`);
    await page.getByRole('button', { name: 'Copy' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(command, (await texts(page, '#curl'))[0]);
    execFileSync('sh', ['-c', command], { cwd: facts.folder, stdio: 'pipe' });
    const name = /-o '([^']+)'/.exec(command)[1];
    const { readFileSync } = await import('node:fs');
    const by_command = readFileSync(`${facts.folder}/${name}`);
    const file = await saved(page, () => page.getByRole('button', { name: 'Download' }).click());
    assert.equal(sha256(by_command), file.sha256);
    assert.equal(file.name, name);
    await end();
  },

  // The explanation of an activation and the events of a device link to each other.
  async lookup(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/`);
    await page.getByRole('link', { name: 'Device' }).click();
    await page.getByLabel('App', { exact: true }).selectOption('app-x');
    await page.getByLabel('Kind of id').selectOption('oaid');
    await page.getByLabel('Id, or its MD5').fill(facts.device);
    await page.getByRole('button', { name: 'Look up' }).click();
    await has(page, '.events .activation', facts.activation);
    await has(page, '.events .verdict', 'click');
    assert.deepEqual(await texts(page, '.events .verdict'), ['effect', 'activation', 'click']);
    assert.ok(!page.url().includes(facts.device), page.url());
    await page.getByRole('link', { name: 'Explain its credit' }).click();
    await has(page, '.outcome', 'attributed to campaign 7');
    // Going back and reloading do not ask whether to submit a form again.
    for (const act of [() => page.goBack(), () => page.reload()]) {
      await act();
      await has(page, '.events .activation', facts.activation);
      assert.equal(await page.getByLabel('Id, or its MD5').inputValue(), facts.device);
    }
    await page.goForward();
    await has(page, '.outcome', 'attributed to campaign 7');
    await has(page, '#main', 'It is the only touch that could be credited.');
    await has(page, '.events .won', facts.click);
    await page.locator('#event_id').fill('nothing');
    await page.getByRole('button', { name: 'Look up' }).click();
    await has(page, '#event_id-wrong', 'has no activation with this id');
    await end();
  },

  // On a phone: the link of a campaign is chosen and copied by the keyboard, and its requests show what was wrong.
  async links(browser) {
    const { context, page, end } = await open(browser, base, { viewport: PHONE });
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base });
    await page.goto(`${base}/`);
    await page.getByRole('link', { name: 'Links' }).click();
    await has(page, '#link-1', facts.link);
    await has(page, '.events .produced', 'Macro not replaced: oaid, ip');
    await has(page, '.events .refused', 'spreadid: expected the number of the campaign');
    await tabTo(page, '#kind-click');
    await page.keyboard.press('ArrowDown');
    assert.equal(await page.locator('#kind-impression').isChecked(), true);
    await tabTo(page, 'main button.main');
    await Promise.all([page.waitForURL(/kind=impression/), page.keyboard.press('Enter')]);
    await has(page, '#link-1', '/impression/');
    await tabTo(page, '[data-copy="link-1"]');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, facts.link.replace('/click/', '/impression/'));
    await page.getByLabel('App', { exact: true }).selectOption('app-y');
    await page.getByRole('button', { name: 'Show' }).click();
    await has(page, '#campaign-wrong, .empty', 'campaign');
    await accessible(page, 'no campaign');
    await end();
    const plain = await open(browser, base, { javaScriptEnabled: false, viewport: PHONE });
    await plain.page.goto(`${base}/links`);
    await has(plain.page, '#link-1', facts.link);
    await plain.page.getByLabel('People').check();
    await plain.page.getByRole('button', { name: 'Show' }).click();
    await has(plain.page, '#link-1', '/go/poster');
    assert.equal(await plain.page.getByRole('button', { name: 'Copy' }).count(), 0);
    await plain.end();
  },

  // Very long names and ids make no page wider than the screen, and are completely readable.
  async long(browser) {
    for (const width of [1280, 375]) {
      const { page, end } = await open(browser, base, { viewport: { width, height: 740 } });
      const { app, name, event, id, device, day } = facts.long;
      const days = `app=${app}&range=custom&from=${day}&to=${day}`;
      const read = async (text, what) => {
        await page.evaluate(() => document.querySelectorAll('details').forEach((part) => (part.open = true)));
        await fits(page, `${what} at ${width}`);
        assert.ok(await legible(page, text), `${text} is cut off: ${what} at ${width}`);
      };
      await page.goto(`${base}/?${days}`);
      await read(name, 'the first page');
      await page.goto(`${base}/?${days}&event_name=${event}&preset=own&fields=event_id,event_name,props.${name}&form=csv`);
      await read(event, 'a filter');
      await saved(page, () => page.getByRole('button', { name: 'Download' }).click());
      await page.goto(`${base}/exports`);
      await read(event, 'the history');
      await page.goto(`${base}/activations?app=${app}&event_id=${id}`);
      await read(id, 'an activation');
      await read(name, 'an activation');
      await page.goto(`${base}/activations?app=${app}&event_id=${id}x`);
      await read('', 'no activation');
      await page.goto(`${base}/links?app=${app}`);
      await read(name, 'a link');
      await page.goto(`${base}/devices?app=${app}`);
      await page.getByLabel('Id, or its MD5').fill(device);
      await page.getByRole('button', { name: 'Look up' }).click();
      await has(page, '.events .activation', id);
      await read(id, 'a device');
      await read(event, 'a device');
      await end();
    }
  },

  // From the top of the page to the file, by the keyboard alone.
  async keyboard(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/?app=app-x&range=yesterday&form=csv`);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    await page.keyboard.press('Enter');
    await tabTo(page, '#range-yesterday');
    for (let presses = 0; presses < 3; presses += 1) await page.keyboard.press('ArrowDown');
    assert.equal(await page.locator('#range-custom').isChecked(), true);
    await tabTo(page, '#timezone');
    // The previous page shows UTC too.
    await Promise.all([page.waitForURL(/range=custom/), page.keyboard.press('Enter')]);
    await has(page, '#expected', 'UTC');
    await tabTo(page, '#download');
    const file = await saved(page, () => page.keyboard.press('Enter'));
    assert.equal(lines(file.bytes), facts.yesterday + 1);
    await has(page, '#progress.complete', file.sha256);
    await tabTo(page, '#preview');
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => document.getElementById('preview').scrollLeft > 0);
    await end();
  },

  // Every page in both themes and on both screen sizes: each once, or with PAGE_LOOKS=all all combinations.
  async looks(browser) {
    const desk = { width: 1280, height: 900 };
    const looks = [['light', desk], ['dark', PHONE]];
    if (process.env.PAGE_LOOKS === 'all') looks.push(['light', PHONE], ['dark', desk]);
    for (const [colorScheme, viewport] of looks) {
      const { page, end } = await open(browser, base, { colorScheme, viewport });
      const pages = [
        `/?${facts.custom}`,
        `/?${facts.custom}&preset=own&channel=toutiao`,
        '/?app=app-y',
        '/?app=nobody&timezone=Mars',
        '/exports',
        `/activations?app=app-x&event_id=${facts.activation}`,
        '/activations?app=app-x&event_id=nothing',
        '/devices',
        '/callbacks?app=app-x',
        '/links?app=app-x',
        '/links?app=app-x&kind=person',
        '/links?app=app-x&channel=none&campaign=none',
        '/nothing',
      ];
      for (const path of pages) {
        const what = `${path} ${colorScheme} ${viewport.width}`;
        await page.goto(base + path);
        await page.evaluate(() => document.querySelectorAll('details').forEach((part) => (part.open = true)));
        await accessible(page, what);
        await fits(page, what);
      }
      await page.goto(`${base}/devices`);
      await page.getByLabel('Id, or its MD5').fill(facts.device);
      await page.getByLabel('App', { exact: true }).selectOption('app-x');
      await page.getByRole('button', { name: 'Look up' }).click();
      await has(page, '.events .activation', facts.activation);
      await accessible(page, `a device ${colorScheme}`);
      await fits(page, `a device ${colorScheme}`);
      await end();
    }
  },

  // Without a token the page asks for one; with a token it shows only the token's apps.
  async tokens(browser) {
    const [x, y] = [await open(browser, base), await open(browser, base)];
    await x.page.goto(`${base}/?app=app-x&range=custom&from=${facts.first_day}&to=${facts.last_day}`);
    await accessible(x.page, 'sign-in');
    await x.page.getByLabel('Token').fill(`${facts.token_x.slice(0, -1)}!`);
    await x.page.keyboard.press('Enter');
    await has(x.page, '#token-wrong', 'not a complete token');
    await x.page.getByLabel('Token').fill(facts.expired);
    await x.page.keyboard.press('Enter');
    await has(x.page, '#token-wrong', 'has expired');
    await x.page.getByLabel('Token').fill(facts.token_x);
    await x.page.keyboard.press('Enter');
    // Signing in leads to the requested page.
    await has(x.page, '#rows', 'row');
    assert.match(x.page.url(), /from=/);
    assert.deepEqual(await texts(x.page, '#app option'), ['app-x']);
    const file = await saved(x.page, () => x.page.getByRole('button', { name: 'Download' }).click());
    await has(x.page, '#progress.complete', file.sha256);
    const command = (await texts(x.page, '#curl'))[0];
    const env = { ...process.env, ADTRAIL_TOKEN: facts.token_x };
    execFileSync('sh', ['-c', command], { cwd: facts.folder, env, stdio: 'pipe' });
    assert.ok(!command.includes(facts.token_x));

    await y.page.goto(`${base}/exports`);
    await y.page.getByLabel('Token').fill(facts.token_y);
    await y.page.getByRole('button', { name: 'Sign in' }).click();
    await has(y.page, '.empty', 'No export yet');
    const other = await y.page.goto(`${base}/?app=app-x`);
    assert.equal(other.status(), 400);
    await has(y.page, '#app-wrong', 'No app has this key');
    await x.page.goto(`${base}/exports`);
    await has(x.page, '.exports li .sum', file.sha256);
    const cookies = await x.context.cookies();
    assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]), [['adtrail_session', true, 'Strict']]);
    assert.ok(!facts.token_x.includes(cookies[0].value));
    assert.equal(await x.page.evaluate(() => document.cookie), '');
    // After the session has ended, signing in again continues where it ended.
    const sign_in = async () => {
      await x.page.getByLabel('Token').fill(facts.token_x);
      await x.page.keyboard.press('Enter');
    };
    await x.context.clearCookies();
    await x.page.getByRole('link', { name: /Download again/ }).first().click();
    await sign_in();
    await has(x.page, '.exports li .sum', file.sha256);
    const again = await saved(x.page, () => x.page.getByRole('link', { name: /Download again/ }).first().click());
    assert.equal(again.sha256, file.sha256);
    await x.page.getByRole('link', { name: /Open in the form/ }).first().click();
    await has(x.page, '#rows', 'row');
    await x.page.getByLabel('Installs').check();
    await x.context.clearCookies();
    await x.page.getByRole('button', { name: 'Download' }).click();
    await sign_in();
    await has(x.page, '#rows', 'row');
    assert.equal(await x.page.getByLabel('Installs').isChecked(), true);
    const installs = await saved(x.page, () => x.page.getByRole('button', { name: 'Download' }).click());
    await has(x.page, '#progress.complete', installs.sha256);
    await x.page.getByRole('link', { name: 'Device' }).click();
    await x.page.getByLabel('Id, or its MD5').fill(facts.device);
    await x.context.clearCookies();
    await x.page.getByRole('button', { name: 'Look up' }).click();
    await sign_in();
    await x.page.getByLabel('Id, or its MD5').fill(facts.device);
    await x.page.getByRole('button', { name: 'Look up' }).click();
    await has(x.page, '.events .activation', facts.activation);
    await x.page.getByRole('button', { name: 'Sign out' }).click();
    await x.page.getByLabel('Token').waitFor();
    assert.equal((await x.page.goto(`${base}/exports`)).status(), 401);
    await x.end();
    await y.end();
  },

  // The store fails midway: the browser shows a failed download, and the page says so.
  async failure(browser) {
    const { page, end } = await open(browser, base);
    await page.goto(`${base}/?${facts.custom}&form=csv`);
    await has(page, '#rows', `${facts.all.toLocaleString('en')} rows`);
    const begin = () => page.getByRole('button', { name: 'Download' }).click();
    const [download] = await Promise.all([page.waitForEvent('download'), begin()]);
    const failure = await download.failure();
    assert.ok(failure, 'the browser shows a truncated file as complete');
    await has(page, '#progress.failed', 'The file is incomplete');
    const rows = Number(/after ([\d,]+) rows/.exec(await page.locator('#progress').innerText())[1].replaceAll(',', ''));
    assert.ok(rows > 0 && rows < facts.all, `${rows}`);
    await page.getByRole('link', { name: 'History' }).click();
    await has(page, '.exports li .state', `Aborted after ${rows.toLocaleString('en')} rows`);
    await accessible(page, 'a failure');
    await end();
    console.error(`the browser reports: ${failure}, after ${rows} rows`);
  },
};

const browser = await launch();
for (const task of tasks.split(',')) {
  await all[task](browser);
  console.log(task);
}
await browser.close();
