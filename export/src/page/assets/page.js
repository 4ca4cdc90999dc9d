// Progress of downloads and copy buttons. Everything else works without a script.
'use strict';
(() => {
  const number = (rows) => `${rows.toLocaleString('en')} ${rows === 1 ? 'row' : 'rows'}`;
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));

  // Returns the state of an export; `null` if no export has this id, or the request failed.
  async function fetchExport(id) {
    try {
      const answer = await fetch(`/v1/exports/${id}`, { headers: { Accept: 'application/json' } });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  // Polls an export until it ends, or until no response came for a minute.
  async function follow(id, show) {
    for (let missed = 0; missed < 120; missed += 1) {
      const found = await fetchExport(id);
      show(found);
      if (found && found.state !== 'running') return;
      if (found) missed = 0;
      await wait(500);
    }
    show({ state: 'lost' });
  }

  const choose = document.getElementById('choose');
  const progress = document.getElementById('progress');

  function element(name, text, more = {}) {
    return Object.assign(document.createElement(name), { textContent: text }, more);
  }

  // Shows the progress bar and its text below the button.
  function progressView(expected) {
    const bar = element('progress', '', { ariaLabel: 'Progress of the download' });
    const words = element('p', '');
    progress.replaceChildren(bar, words);
    return (found) => {
      progress.className = `progress ${found ? found.state : 'running'}`;
      if (!found) {
        words.textContent = 'The download begins …';
        return;
      }
      const of = expected >= found.rows ? ` of ${number(expected)}` : '';
      const texts = {
        running: `${found.rows?.toLocaleString('en')}${of || ' rows'}`,
        complete: `Complete: ${number(found.rows ?? 0)}. SHA-256 `,
        aborted: `Aborted after ${number(found.rows ?? 0)}. The file is incomplete; download it again.`,
        failed: `Aborted after ${number(found.rows ?? 0)}: the service could not read the rest. The file is incomplete.`,
        lost: 'The state of the download is unknown. See the history.',
      };
      words.textContent = texts[found.state];
      if (found.state === 'running') {
        if (expected > 0) Object.assign(bar, { max: expected, value: Math.min(found.rows, expected) });
        return;
      }
      bar.remove();
      if (found.sha256) words.append(element('code', found.sha256, { className: 'sum' }));
    };
  }

  if (choose && document.getElementById('download')) {
    const rows = Number(document.getElementById('rows').dataset.rows);
    const changed = document.getElementById('changed');
    const state = () => new URLSearchParams(new FormData(choose)).toString();
    const first = state();
    choose.addEventListener('input', () => {
      changed.hidden = state() === first;
    });
    choose.addEventListener('submit', (event) => {
      const previous = choose.elements.namedItem('export_id');
      if (previous) previous.remove();
      if (event.submitter?.id !== 'download') return;
      const expected = state() === first ? rows : -1;
      // Choose the id, so that the export can be polled before the response headers arrive.
      const [random] = crypto.getRandomValues(new BigUint64Array(1));
      const id = (random | (1n << 63n)).toString(16);
      choose.append(element('input', '', { type: 'hidden', name: 'export_id', value: id }));
      follow(id, progressView(expected));
    });
    // After navigating back, the form is the one that was sent.
    window.addEventListener('pageshow', () => {
      choose.elements.namedItem('export_id')?.remove();
      changed.hidden = state() === first;
    });
  }

  for (const button of document.querySelectorAll('[data-copy]')) {
    const source = document.getElementById(button.dataset.copy);
    button.hidden = false;
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        // Without HTTPS, only a selection can be copied.
        getSelection().selectAllChildren(source);
        document.execCommand('copy');
      }
      button.textContent = 'Copied';
      await wait(2000);
      button.textContent = 'Copy';
    });
  }

  for (const line of document.querySelectorAll('[data-state="running"]')) {
    const state = line.querySelector('.state');
    follow(line.dataset.export, (found) => {
      if (found?.state === 'running') state.textContent = `Running, ${number(found.rows)} so far`;
      else if (found && found.state !== 'lost') location.reload();
    });
  }
})();
