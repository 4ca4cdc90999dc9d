//! Compares a store with a sorted map: the rows, which are distributed over partitions, expire and reappear, and the
//! statistics of their regions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use adtrail_store::embedded::open_for_reading;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::{Key, RowKey};
use adtrail_store::layout::region::RegionSize;
use adtrail_store::reader::Reader;
use attribution::facts::event::EventTime;
use attribution::rules::policy::HOUR_MS;
use config::AppStore;
use proptest::prelude::*;

use super::rows::{commit, decision_write};
use super::support::facts::{Draft, activation};
use super::support::rules::{X, Y, apps};
use super::{RETENTION_HOURS, StoreFixture};

/// An operation on a store.
#[derive(Debug, Clone)]
enum Step {
    /// Writes events: number, hour, campaign and size in bytes.
    Write(Vec<(u8, u8, u8, u16)>),
    /// Advances the consumed time by hours.
    Advance(u8),
    /// Reopens the store with other fanouts, as powers of two, of the two apps.
    Reopen(Option<u8>, Option<u8>),
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = (any::<u8>(), 0..72u8, 0..3u8, prop_oneof![0..20u16, 500..3_000u16]);
    let fanout = || proptest::option::of(0..4u8);
    let step = prop_oneof![
        6 => proptest::collection::vec(event, 1..60).prop_map(Step::Write),
        2 => (1..30u8).prop_map(Step::Advance),
        2 => (fanout(), fanout()).prop_map(|(x, y)| Step::Reopen(x, y)),
        1 => Just(Step::Compact),
    ];
    proptest::collection::vec(step, 1..25)
}

/// A row of an app: time, campaign, sequence number and text, in sort order.
type Row = (u64, u32, u64, String);

/// A store and its expected rows.
struct Fixture {
    disk: StoreFixture,
    /// Time, campaign and text by event number.
    rows: BTreeMap<u8, (u64, u32, String)>,
}

impl Fixture {
    fn new(partitions: u16) -> Self {
        let disk = StoreFixture::new(|settings| {
            settings.partitions = partitions;
            settings.region_bytes_max = 1 << 16;
        });
        Self { disk, rows: BTreeMap::new() }
    }

    fn reader(&mut self) -> Reader {
        self.disk.store().reader()
    }

    /// Returns the number of regions.
    fn regions(&mut self) -> usize {
        self.reader().regions().expect("an embedded store has regions").iter().len()
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(events) => self.write(events),
            Step::Advance(hours) => self.advance(u64::from(*hours)),
            Step::Reopen(x, y) => self.open_with([*x, *y]),
            Step::Compact => self.disk.store().compact().unwrap(),
        }
    }

    fn advance(&mut self, hours: u64) {
        self.disk.advance(hours);
        let expired_before_ms = (self.disk.consumed_ms / HOUR_MS - RETENTION_HOURS) * HOUR_MS;
        self.rows.retain(|_, (time, ..)| *time >= expired_before_ms);
    }

    fn open_with(&mut self, fanout_bits: [Option<u8>; 2]) {
        self.disk.store = None;
        let bits_max = self.disk.settings.partitions.ilog2() as u8;
        for (pid, bits) in [X, Y].into_iter().zip(fanout_bits) {
            let fanout = bits.map(|bits| 1 << bits.min(bits_max));
            self.disk.settings.apps.insert(pid, AppStore { retention_ms: None, fanout });
        }
        self.disk.store();
    }

    fn write(&mut self, events: &[(u8, u8, u8, u16)]) {
        let consumed_ms = self.disk.consumed_ms;
        let mut last: BTreeMap<u8, _> = BTreeMap::new();
        for (number, hour, spreadid, bytes) in events {
            let time = consumed_ms - 48 * HOUR_MS + u64::from(*hour) * HOUR_MS + 7;
            let text = "x".repeat(usize::from(*bytes));
            last.insert(*number, (time, u32::from(*spreadid), text));
        }
        let mut decisions = Vec::new();
        for (number, row) in last {
            let replaced = self.disk.current_row(event(number, row.0));
            decisions.push(decision_write(event(number, row.0).ua(&row.2), row.1, replaced));
            self.rows.insert(number, row);
        }
        commit(self.disk.store(), decisions);
    }

    /// Returns the expected rows of both apps.
    fn expected(&self) -> [Vec<Row>; 2] {
        [0, 1].map(|app| {
            let of_app =
                self.rows.iter().filter(|(number, _)| u8::from(is_of_app_y(**number)) == app);
            let mut rows: Vec<Row> = of_app
                .map(|(number, (time, spreadid, text))| {
                    (*time, *spreadid, seq(*number), format!("{number} {text}"))
                })
                .collect();
            rows.sort();
            rows
        })
    }
}

fn is_of_app_y(number: u8) -> bool {
    number.is_multiple_of(5)
}

fn event(number: u8, time_ms: u64) -> Draft {
    let draft = activation(&number.to_string(), super::support::facts::millis(time_ms as i64));
    if is_of_app_y(number) { draft.of_app_y() } else { draft }
}

fn seq(number: u8) -> u64 {
    decision_write(event(number, 0), 0, None).row.seq
}

/// Returns the rows of both apps, and the keys and sizes of all rows.
fn scan(reader: &Reader) -> ([Vec<Row>; 2], Vec<(Key, u64)>) {
    let mut keys = Vec::new();
    let rows = apps().map(|app| {
        let mut rows = Vec::new();
        let visit = |key: &RowKey, value: &[u8]| {
            let row = RowView::decode(value).expect("a valid row");
            let text = format!("{} {}", row.text(TextCell::EventId), row.text(TextCell::Ua));
            rows.push((key.event_time.millis(), key.spreadid.0, key.seq, text));
            keys.push((key.encode(), (key.encode().len() + value.len()) as u64));
            ControlFlow::Continue(())
        };
        reader
            .scan_rows(&app, EventTime::default(), EventTime::END, visit)
            .expect("the scan succeeds");
        rows
    });
    (rows, keys)
}

/// Checks that scans newest first return the same rows in reverse.
fn check_newest_first(reader: &Reader, rows: &[Vec<Row>; 2]) {
    for (app, rows) in apps().iter().zip(rows) {
        let view = reader.view();
        let range = EventTime::default()..EventTime::END;
        let mut newest_first = view.rows_newest_first(app, range).expect("the scan succeeds");
        for row in rows.iter().rev() {
            let (key, _) = newest_first
                .current()
                .expect("the scan succeeds")
                .expect("both scans have the same number of rows");
            assert_eq!((key.event_time.millis(), key.spreadid.0, key.seq), (row.0, row.1, row.2));
            newest_first.advance();
        }
        assert!(newest_first.current().expect("the scan succeeds").is_none());
    }
}

/// Returns the stored statistics of each region, and those of the rows that it contains.
fn sizes(reader: &Reader, rows: &[(Key, u64)]) -> [Vec<RegionSize>; 2] {
    let regions = reader.regions().expect("an embedded store has regions");
    let starts: Vec<Key> = regions.iter().map(|region| region.start).collect();
    assert!(starts.is_sorted() && starts[0] == [0; 24]);
    let mut found = vec![RegionSize::default(); starts.len()];
    for (key, bytes) in rows {
        let region = starts.partition_point(|start| start <= key) - 1;
        found[region].rows += 1;
        found[region].bytes += bytes;
    }
    [regions.iter().map(|region| region.size).collect(), found]
}

fn check(fixture: &mut Fixture) -> Result<(), TestCaseError> {
    let expected = fixture.expected();
    let reopened = open_for_reading(&fixture.disk.settings).expect("the store opens");
    for reader in [fixture.reader(), reopened] {
        let (rows, keys) = scan(&reader);
        prop_assert_eq!(&rows, &expected);
        check_newest_first(&reader, &rows);
        let [stored, found] = sizes(&reader, &keys);
        prop_assert_eq!(stored, found);
        prop_assert_eq!(
            keys.len() as u64,
            fixture.disk.store().status_counts().values().sum::<u64>()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: testbed::length(6, 12),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn rows_and_statistics_match_a_sorted_map(
        partitions in prop_oneof![Just(1u16), Just(3), Just(64), Just(65_535)],
        steps in steps(),
    ) {
        let mut fixture = Fixture::new(partitions);
        for step in &steps {
            fixture.apply(step);
            check(&mut fixture)?;
        }
        fixture.disk.store = None;
        check(&mut fixture)?;
    }
}

/// Writes events of app X with these numbers, an hour apart, a kilobyte each.
fn write_events(fixture: &mut Fixture, numbers: std::ops::Range<u8>) {
    let events: Vec<_> =
        numbers.filter(|n| !is_of_app_y(*n)).map(|n| (n, n % 72, 1, 1_000)).collect();
    fixture.write(&events);
}

#[test]
fn growing_regions_are_split_and_empty_ones_merged() {
    let mut fixture = Fixture::new(64);
    assert_eq!(fixture.regions(), 8, "the regions of a new store");
    write_events(&mut fixture, 0..250);
    check(&mut fixture).unwrap();
    // 200 kB: regions are added at 1 kB, 8 kB and 27 kB, then one per 64 kB.
    let split = fixture.regions();
    assert!((11..=14).contains(&split), "{split}");
    fixture.disk.store = None;
    assert_eq!(fixture.regions(), split, "after reopening");
    fixture.advance(200);
    check(&mut fixture).unwrap();
    assert_eq!(fixture.regions(), 8);
    assert!(fixture.rows.is_empty());
}

#[test]
fn rows_of_one_hour_are_not_split() {
    let mut fixture = Fixture::new(1);
    let events: Vec<_> = (0..250).filter(|n| !is_of_app_y(*n)).map(|n| (n, 1, 1, 2_900)).collect();
    fixture.write(&events);
    check(&mut fixture).unwrap();
    assert_eq!(fixture.regions(), 1);
    fixture.write(&[(1, 2, 1, 2_900)]);
    assert_eq!(fixture.regions(), 1, "a region was split that grew by less than a quarter");
    write_events(&mut fixture, 0..250);
    check(&mut fixture).unwrap();
    assert!(fixture.regions() > 1);
}

#[test]
fn an_export_reads_a_snapshot_while_the_fanout_grows() {
    let mut fixture = Fixture::new(64);
    fixture.disk.store = None;
    fixture.disk.settings.fanout_above = Some(1);
    write_events(&mut fixture, 0..250);
    let before = fixture.expected();
    let reader = fixture.reader();
    let view = reader.view();
    let mut rows = view
        .rows(&apps()[0], EventTime::default()..EventTime::END, None)
        .expect("the scan succeeds");
    let mut seen = Vec::new();
    let mut fanouts = Vec::new();
    while let Some((key, _)) = rows.current().expect("the scan succeeds") {
        seen.push((key.event_time.millis(), key.spreadid.0, key.seq));
        rows.advance();
        if seen.len() % 50 == 0 {
            // Moves all events by an hour, some of them to other partitions.
            let events = (0..250).filter(|n| !is_of_app_y(*n)).map(|n| (n, n % 72 + 1, 1, 9));
            fixture.write(&events.collect::<Vec<_>>());
            fanouts.push(reader.apps().expect("an embedded store lists its apps")[&X].fanout_bits);
        }
    }
    let expected: Vec<_> = before[0].iter().map(|row| (row.0, row.1, row.2)).collect();
    assert_eq!(seen, expected);
    fanouts.dedup();
    assert!(fanouts.len() > 1, "the fanout does not grow during the export: {fanouts:?}");
    drop(rows);
    check(&mut fixture).unwrap();
}

#[test]
fn the_fanout_grows_automatically_unless_it_is_configured() {
    let mut fixture = Fixture::new(64);
    fixture.disk.store = None;
    fixture.disk.settings.fanout_above = Some(1);
    let fixed = AppStore { retention_ms: None, fanout: Some(2) };
    fixture.disk.settings.apps.insert(Y, fixed);
    // Rates are averaged over a minute: 200 rows of app X are three per second, 50 rows of app Y are one.
    for _ in 0..3 {
        let events: Vec<_> = (0..=249).map(|n| (n, n % 72, 1, 10)).collect();
        fixture.write(&events);
        check(&mut fixture).unwrap();
    }
    let fanouts = |fixture: &mut Fixture| {
        [X, Y].map(|pid| {
            fixture.reader().apps().expect("an embedded store lists its apps")[&pid].fanout_bits
        })
    };
    let [x, y] = fanouts(&mut fixture);
    assert!(x > 0, "app X is not distributed");
    assert_eq!(y, 1);
    fixture.disk.store = None;
    assert_eq!(fanouts(&mut fixture), [x, y], "after reopening");
    fixture.disk.store = None;
    fixture.disk.settings.fanout_above = None;
    check(&mut fixture).unwrap();
    assert_eq!(fanouts(&mut fixture), [0, 1], "the fanout of app X remains");
}

#[test]
fn a_longer_retention_counts_reappearing_rows() {
    let mut fixture = Fixture::new(64);
    write_events(&mut fixture, 0..100);
    let all = fixture.rows.clone();
    fixture.advance(80);
    check(&mut fixture).unwrap();
    assert!(!fixture.rows.is_empty() && fixture.rows.len() < all.len());
    fixture.disk.store = None;
    fixture.disk.settings.retention_ms = None;
    fixture.rows = all;
    fixture.disk.store();
    check(&mut fixture).unwrap();
}

#[test]
fn an_app_can_have_its_own_retention() {
    let mut fixture = Fixture::new(64);
    fixture.disk.store = None;
    fixture.disk.settings.apps.insert(Y, AppStore { retention_ms: Some(None), fanout: None });
    let events: Vec<_> = (0..=249).map(|n| (n, n % 72, 1, 10)).collect();
    fixture.write(&events);
    let is_y = |(number, _): &(&u8, &(u64, u32, String))| is_of_app_y(**number);
    let kept: BTreeMap<_, _> =
        fixture.rows.iter().filter(is_y).map(|(number, row)| (*number, row.clone())).collect();
    fixture.advance(1_000);
    fixture.rows = kept;
    check(&mut fixture).unwrap();
    fixture.disk.store().compact().unwrap();
    check(&mut fixture).unwrap();
}

#[test]
fn reads_are_counted_by_region() {
    let mut fixture = Fixture::new(64);
    write_events(&mut fixture, 0..100);
    let reader = fixture.reader();
    scan(&reader);
    let read: u64 = reader
        .regions()
        .expect("an embedded store has regions")
        .iter()
        .map(|region| region.reads.total)
        .sum();
    assert_eq!(read, 80);
}
