//! `adtrail demo`, as a new user runs it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;
use testbed::adtrail::{adtrail, sum};
use testbed::{Captured, await_exit, check_exit, eventually, http, kill, run};

/// Lets one demo run at a time: two demos that search for free ports at the same time could choose the same ones.
fn lock_demo() -> MutexGuard<'static, ()> {
    static DEMO: Mutex<()> = Mutex::new(());
    DEMO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command with a separate temporary folder.
fn demo(temporary: &TempDir) -> Command {
    let mut command = adtrail();
    command.arg("demo").env("TMPDIR", temporary.path());
    command
}

#[track_caller]
fn assert_empty(temporary: &TempDir) {
    let entries = fs::read_dir(temporary).map(Iterator::collect::<Vec<_>>);
    assert!(entries.as_ref().is_ok_and(Vec::is_empty), "{entries:?}");
}

#[test]
fn demo_once_shows_rows_and_leaves_nothing_behind() {
    let _lock = lock_demo();
    let temporary = TempDir::new().unwrap();
    let output = run(demo(&temporary).arg("--once"), b"");
    let log = check_exit(&output, 0, &["attributing events"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    let names = "event_time                event_name  status      channel   campaign";
    let table = shown.lines().skip_while(|line| !line.trim_start().starts_with(names));
    let rows: Vec<_> = table.skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 12, "{shown}");
    assert!(rows.is_sorted(), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    for part in ["attributed", "organic", "toutiao", "purchase", "orphan", "duplicate", "not_json"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Progress bars are drawn only on a terminal.
    assert!(!log.contains('█'), "{log}");
    assert_empty(&temporary);
}

#[test]
fn the_demo_serves_until_it_is_interrupted() {
    let _lock = lock_demo();
    let temporary = TempDir::new().unwrap();
    // The port is in use, by this listener or by another process.
    let _listener = TcpListener::bind("127.0.0.1:8080");
    let [shown, log] = [Captured::empty(), Captured::empty()];
    let mut child = demo(&temporary)
        .stdin(Stdio::null())
        .stdout(shown.sink())
        .stderr(log.sink())
        .spawn()
        .unwrap();
    eventually("the demo serves", || {
        let ended = child.try_wait().unwrap();
        if ended.is_none() && shown.text().contains("Ctrl-C") { Ok(()) } else { Err(log.text()) }
    });
    let notice = "127.0.0.1:8080 is in use, so the demo listens on";
    assert!(log.text().contains(notice), "{}", log.text());

    let url = |label: &str| {
        let shown = shown.text();
        let line = shown.lines().find(|line| line.trim_start().starts_with(label));
        line.and_then(|line| line.split("http://").nth(1)).unwrap_or_default().to_owned()
    };
    let get = |url: &str| {
        let (address, path) = url.split_once('/').unwrap();
        http::get(address, &format!("/{path}")).unwrap()
    };
    assert_eq!(get(&url("page")).status, 200);
    assert!(get(&url("metrics")).text().contains("\nadtrail_ingest_read_total{"));
    let links = get(&url("links"));
    assert!(links.status == 200 && links.text().contains("Spring feed"), "{links:?}");
    let click = url("click ");
    // The click has no time, and reports that the network has not replaced a macro.
    assert_eq!(get(click.split('\'').next().unwrap()).text(), "ok");
    assert!(get(&url("links")).text().contains("Macro not replaced: <code>ip</code>"));
    assert_eq!(get(&url("poster")).status, 302);
    let produced =
        || sum(&get(&url("metrics")).text(), "adtrail_collect_produced_total", "").unwrap_or(0.0);
    let await_reports = |count: f64| {
        eventually("live clicks are reported to the collector", || match produced() {
            produced if produced >= count => Ok(()),
            produced => Err(format!("{produced} {}", log.text())),
        });
    };
    await_reports(4.0);
    // More connections than one client may have: the collector refuses the demo's own ones.
    let collector = click.split('/').next().unwrap();
    let busy: Vec<_> = (0..300).filter_map(|_| TcpStream::connect(collector).ok()).collect();
    eventually("the collector refuses reports", || {
        let is_refused = log.text().contains("which is sent again");
        if is_refused { Ok(()) } else { Err(log.text()) }
    });
    drop(busy);
    await_reports(produced() + 4.0);
    let sent = format!("{}&state=sent", url("callbacks"));
    eventually("callbacks are sent", || {
        let page = get(&sent).text();
        if page.contains("data-state=\"sent\"") { Ok(()) } else { Err(page) }
    });
    let curl = url("full CSV");
    let csv = get(curl.split('\'').next().unwrap());
    assert!(csv.status == 200 && csv.is_whole, "{csv:?}");
    let mut rows = csv::Reader::from_reader(&csv.body[..]);
    assert!(rows.headers().unwrap().len() > 40);
    assert!(rows.records().map(Result::unwrap).count() > 4_000);

    kill(child.id(), "INT");
    let status = await_exit(&mut child);
    assert!(status.success(), "{status}: {}", log.text());
    assert_empty(&temporary);
}
