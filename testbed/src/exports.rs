//! The exports of the generated traffic, downloaded from a service and expected.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, OnceLock};
use std::thread;

use sha2::{Digest, Sha256};

use super::adtrail::{Adtrail, sum};
use super::rows;
use super::site::{Site, Topics};
use crate::traffic::{self, APPS, FROM, Record, TO};

/// One CSV per app of [`APPS`].
pub type Exports = [Vec<u8>; APPS.len()];

/// Records and their expected exports, generated once per process.
pub struct Workload {
    records: LazyLock<Vec<Record>>,
    expected: OnceLock<Exports>,
}

impl Workload {
    pub const fn new(draw: fn() -> Vec<Record>) -> Self {
        Self { records: LazyLock::new(draw), expected: OnceLock::new() }
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the output of [`replayed`].
    pub fn expected(&self) -> &Exports {
        self.expected.get_or_init(|| replayed(&self.records))
    }

    /// Checks that a service that has read everything has the expected exports.
    #[track_caller]
    pub fn check(&self, site: &Site, adtrail: &Adtrail) {
        check_equal(&downloads(site, adtrail), self.expected());
    }

    /// Starts a service that reads everything, and checks that it has the expected exports.
    #[track_caller]
    pub fn check_all(&self, site: &Site) {
        let adtrail = site.start();
        adtrail.await_caught_up();
        self.check(site, &adtrail);
        adtrail.stop();
    }
}

/// Counters of the records read, one per outcome.
pub const OUTCOMES: [&str; 4] = [
    "adtrail_attribution_accepted_total",
    "adtrail_attribution_redelivered_total",
    "adtrail_ingest_dead_lettered_total",
    "adtrail_ingest_empty_total",
];

/// Returns the output of `adtrail replay` for the records in their original order.
pub fn replayed(records: &[Record]) -> Exports {
    let site = Site::on(Topics::of("replayed"), "nowhere:1".into(), traffic::SETTINGS);
    let file = site.write("events.ndjson", traffic::file(records));
    APPS.map(|app| {
        let output = site.run(&["replay", "--app", app, &file]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let bad = records.iter().filter(|record| record.is_bad).count();
        assert!(stderr.contains(&format!("skipped {bad} lines")), "{stderr}");
        output.stdout
    })
}

/// Downloads all exports over HTTP and with the command, from a service that has read everything. Checks that both
/// are equal, and that the metrics match the rows.
pub fn downloads(site: &Site, adtrail: &Adtrail) -> Exports {
    let exports = APPS.map(|app| {
        let by_http = by_http(adtrail, app);
        assert!(by_http == site.download(app, FROM, TO, &[]), "HTTP and command differ for {app}");
        by_http
    });
    check_conserved(&adtrail.metrics(), &exports);
    exports
}

/// Downloads all exports with the command.
#[track_caller]
pub fn by_command(site: &Site) -> Exports {
    APPS.map(|app| site.download(app, FROM, TO, &[]))
}

/// Checks that every record read has one outcome. The check passes for an exporter, which has no counters.
#[track_caller]
pub fn check_counters(scrape: &str) {
    for topic in topics_of(scrape) {
        let label = format!("topic=\"{topic}\"");
        let count = |name: &str| sum(scrape, name, &label).unwrap_or(0.0);
        let (read, outcomes) = (count("adtrail_ingest_read_total"), OUTCOMES.map(count));
        assert_eq!(read, outcomes.iter().sum::<f64>(), "{topic}: {outcomes:?}");
    }
}

/// Checks the conservation laws of the contract, section 8. Gauges of rows are compared unless the store is HBase,
/// which has none.
#[track_caller]
pub fn check_conserved(scrape: &str, exports: &Exports) {
    check_counters(scrape);
    let mut exported = BTreeMap::new();
    for row in exports.iter().flat_map(|csv| rows::parse(csv)) {
        *exported.entry((row["event_type"].clone(), row["status"].clone())).or_insert(0.0) += 1.0;
    }
    let gauges = scrape.lines().filter_map(|line| line.strip_prefix("adtrail_store_rows{"));
    let gauges: BTreeMap<(String, String), f64> = gauges
        .map(|line| {
            let (labels, value) = line.split_once("} ").expect("the series has labels and a value");
            let label = |name: &str| {
                let (_, rest) =
                    labels.split_once(&format!("{name}=\"")).expect("the series has this label");
                rest.split('"').next().unwrap_or_default().to_owned()
            };
            ((label("event_type"), label("status")), value.parse().expect("it is a number"))
        })
        .filter(|(_, rows)| *rows > 0.0)
        .collect();
    if scrape.contains("adtrail_store_rows{") {
        assert_eq!(gauges, exported, "rows by type and status, in metrics and exports");
    }
}

/// Returns the topics that have a read counter.
fn topics_of(scrape: &str) -> Vec<&str> {
    let read = scrape.lines().filter_map(|line| line.strip_prefix("adtrail_ingest_read_total{"));
    read.filter_map(|line| line.split("topic=\"").nth(1)?.split('"').next()).collect()
}

pub fn by_http(adtrail: &Adtrail, app: &str) -> Vec<u8> {
    let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
    let reply = adtrail.get(&path).unwrap();
    assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
    let sha256: String =
        Sha256::digest(&reply.body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(reply.trailer("adtrail-sha256"), Some(&*sha256), "{app}");
    let rows = rows::parse(&reply.body).len().to_string();
    assert_eq!(reply.trailer("adtrail-rows"), Some(&*rows), "{app}");
    reply.body
}

#[track_caller]
pub fn check_equal(found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    for ((found, expected), app) in found.iter().zip(expected).zip(APPS) {
        check_same(app, found, expected);
    }
}

/// Checks that an export is byte-for-byte as expected. `scripts/guarantees` adds up the printed comparisons.
#[track_caller]
pub fn check_same(app: &str, found: &[u8], expected: &[u8]) {
    let (rows, lost, doubled) = compare(found, expected);
    let test = thread::current();
    let test = test.name().unwrap_or("main");
    println!("compared by {test}: {rows} rows, {lost} lost, {doubled} doubled");
    let [found, expected] = [found, expected].map(|bytes| String::from_utf8_lossy(bytes));
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{app}, line {}", line + 1);
    }
    assert_eq!(found.len(), expected.len(), "{app}: one export is longer");
}

/// Returns the number of expected rows, of missing events, and of duplicate rows.
fn compare(found: &[u8], expected: &[u8]) -> (usize, usize, usize) {
    let [found, expected] = [found, expected].map(times_by_id);
    let missing = |id: &&Vec<u8>| !found.contains_key(*id);
    let lost = expected.keys().filter(missing).count();
    let doubled = found.values().map(|times| times - 1).sum();
    (expected.values().sum(), lost, doubled)
}

/// Counts the rows of each event.
fn times_by_id(csv: &[u8]) -> HashMap<Vec<u8>, usize> {
    let mut reader = csv::Reader::from_reader(csv);
    let names = reader.byte_headers().expect("the CSV has a header line");
    let id =
        names.iter().position(|name| name == b"event_id").expect("the CSV has a column event_id");
    let mut times = HashMap::new();
    // A malformed row counts as missing.
    for record in reader.byte_records().filter_map(Result::ok) {
        *times.entry(record[id].to_vec()).or_insert(0) += 1;
    }
    times
}
