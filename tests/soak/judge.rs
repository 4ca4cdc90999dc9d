//! Checks at the end: every record is accounted for, exports equal those of `adtrail replay`, expired rows are gone,
//! and the store is intact.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::load::{Counts, Load};
use crate::readers::time;
use crate::traffic::{APPS, HOUR_MS, MEMORY_MS, START_MS, Traffic};
use testbed::adtrail::Adtrail;
use testbed::exports::check_same;
use testbed::run_ok;
use testbed::site::{Site, Topics};

/// Checks that every record was counted with the outcome for which it was produced.
pub fn check_counters(adtrail: &Adtrail, load: &Load<'_>, topics: &Topics) {
    let scrape = adtrail.metrics();
    for (topic, produced) in topics.all().into_iter().zip(load.produced) {
        let count = |name: &str| {
            let label = format!("topic=\"{topic}\"");
            let value = testbed::adtrail::sum(&scrape, name, &label);
            value.expect("the topic has a series") as u64
        };
        let counted = Counts {
            facts: count("adtrail_attribution_accepted_total"),
            repeats: count("adtrail_attribution_redelivered_total"),
            dead_letters: count("adtrail_ingest_dead_lettered_total"),
            empty: count("adtrail_ingest_empty_total"),
        };
        assert_eq!(counted, produced, "{topic}");
        assert_eq!(count("adtrail_ingest_late_records_total"), 0, "{topic}");
    }
}

/// Returns the low watermark, in broker time.
pub fn consumed_until_ms(adtrail: &Adtrail) -> u64 {
    let until = adtrail.metric("adtrail_ingest_consumed_until_timestamp_seconds");
    (until.expect("all partitions have records") * 1e3) as u64
}

/// Compares all retained rows, downloaded over HTTP and by the command, with those of `adtrail replay`, byte for byte.
/// Returns their number.
pub fn compare(
    site: &Site,
    adtrail: &Adtrail,
    traffic: &Traffic,
    ticks: u64,
    retention_ms: u64,
) -> u64 {
    let end_ms = traffic.time_ms(ticks - 1);
    // Rows expire by whole hours; the rest of the oldest hour is not compared.
    let hour = |time_ms: u64| time_ms / HOUR_MS * HOUR_MS;
    let from_ms = hour(end_ms.saturating_sub(retention_ms)).max(START_MS - HOUR_MS) + HOUR_MS;
    check_expired(adtrail, hour(consumed_until_ms(adtrail).saturating_sub(retention_ms)));
    let first = traffic.tick_of(from_ms - MEMORY_MS.min(from_ms - START_MS));
    write_files(site, traffic, first..ticks);
    let mut rows = 0;
    for app in APPS {
        let expected = replayed(site, app, &time(from_ms));
        let (from, to) = (time(from_ms), time(end_ms + HOUR_MS));
        let reply = adtrail.get(&format!("/v1/apps/{app}/events.csv?from={from}&to={to}")).unwrap();
        assert!(reply.status == 200 && reply.is_whole, "{app}");
        check_same(app, &reply.body, &expected);
        check_same(app, &site.download(app, &from, &to, &[]), &expected);
        rows += expected.iter().filter(|byte| **byte == b'\n').count() as u64 - 1;
    }
    rows
}

/// Checks that no row before a time is exported.
fn check_expired(adtrail: &Adtrail, before_ms: u64) {
    if before_ms <= START_MS {
        return;
    }
    let (from, to) = (time(START_MS - 24 * HOUR_MS), time(before_ms));
    for app in APPS {
        let path = format!("/v1/apps/{app}/events.csv?from={from}&to={to}");
        let lines = adtrail.get(&path).unwrap().text().lines().count();
        assert_eq!(lines, 1, "{app} still has rows before {to}");
    }
}

fn file(site: &Site, app: &str) -> std::path::PathBuf {
    site.path().join(format!("{app}.ndjson"))
}

/// Writes the events of each app to a file.
fn write_files(site: &Site, traffic: &Traffic, ticks: std::ops::Range<u64>) {
    let mut files = APPS.map(|app| BufWriter::new(File::create(file(site, app)).unwrap()));
    for sent in ticks.flat_map(|tick| traffic.records(tick)) {
        if let (true, Some(line)) = (sent.is_replayed(), &sent.line) {
            writeln!(files[sent.app], "{line}").unwrap();
        }
    }
    files.iter_mut().for_each(|file| file.flush().unwrap());
}

/// Returns the header line and the rows from this time on. Rows are in order of time.
fn replayed(site: &Site, app: &str, from: &str) -> Vec<u8> {
    let path = file(site, app);
    let csv = run_ok(&mut site.command(&["replay", "--app", app, path.to_str().unwrap()]), b"");
    std::fs::remove_file(path).unwrap();
    let text = String::from_utf8(csv).unwrap();
    let (names, rows) = text.split_once('\n').unwrap();
    assert!(names.starts_with("event_type,event_name,event_time,"), "{names}");
    let time_of = |line: &str| line.split(',').nth(2).unwrap_or_default().to_owned();
    let is_before = |line: &&str| time_of(line).as_str() < from;
    let skipped: usize = rows.split_inclusive('\n').take_while(is_before).map(str::len).sum();
    [names.as_bytes(), b"\n", &rows.as_bytes()[skipped..]].concat()
}

/// Verifies a store after the service has stopped. Returns the number of entries of each check.
pub fn verified(site: &Site) -> Vec<(String, u64)> {
    let printed = String::from_utf8(run_ok(&mut site.command(&["verify"]), b"")).unwrap();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    printed.lines().skip(1).filter_map(line).collect()
}
