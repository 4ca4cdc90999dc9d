//! Rows that are spread over partitions, expire and come back, and the figures of their regions,
//! against a sorted map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::{Key, RowKey};
use adtrail_store::layout::region::Figures;
use adtrail_store::reader::Reader;
use attribution::facts::event::EventTime;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::rules::policy::HOUR_MS;
use config::{AppStore, Store};
use proptest::prelude::*;
use tempfile::TempDir;

use super::rows::{commit, decided};
use super::support::facts::{Draft, activation};
use super::support::rules::{X, Y, apps, rules};
use super::support::run::settings;
use super::write;

/// What is done to a store.
#[derive(Debug, Clone)]
enum Step {
    /// Events with these numbers, hours, campaigns and bytes.
    Write(Vec<(u8, u8, u8, u16)>),
    /// Everything is consumed up to so many hours later.
    Pass(u8),
    /// Closed, and opened with other fans of both apps.
    Open(Option<u8>, Option<u8>),
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = (any::<u8>(), 0..72u8, 0..3u8, prop_oneof![0..20u16, 500..3_000u16]);
    let fanout = || proptest::option::of(0..4u8);
    let step = prop_oneof![
        6 => proptest::collection::vec(event, 1..60).prop_map(Step::Write),
        2 => (1..30u8).prop_map(Step::Pass),
        2 => (fanout(), fanout()).prop_map(|(x, y)| Step::Open(x, y)),
        1 => Just(Step::Compact),
    ];
    proptest::collection::vec(step, 1..25)
}

const START_MS: u64 = 20_000 * 24 * HOUR_MS;
const KEPT_HOURS: u64 = 96;

/// An app's row: time and campaign, as the order is, then what is its own.
type Row = (u64, u32, u64, String);

/// The store, and what it must show.
struct Bed {
    _dir: TempDir,
    settings: Store,
    store: Option<Embedded>,
    /// By the event's number: its time, campaign and text.
    rows: BTreeMap<u8, (u64, u32, String)>,
    consumed_ms: u64,
}

impl Bed {
    fn new(partitions: u16) -> Self {
        let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
        let mut settings = settings(dir.path());
        settings.partitions = partitions;
        settings.region_bytes_max = 1 << 16;
        settings.retention_ms = Some(KEPT_HOURS * HOUR_MS);
        let mut bed =
            Self { _dir: dir, settings, store: None, rows: BTreeMap::new(), consumed_ms: START_MS };
        bed.pass(0);
        bed
    }

    fn store(&mut self) -> &mut Embedded {
        let open = || Embedded::open(&self.settings, &rules()).expect("the store opens");
        self.store.get_or_insert_with(open)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Write(events) => self.write(events),
            Step::Pass(hours) => self.pass(u64::from(*hours)),
            Step::Open(x, y) => self.open_with([*x, *y]),
            Step::Compact => self.store().compact(),
        }
    }

    fn pass(&mut self, hours: u64) {
        self.consumed_ms += hours * HOUR_MS;
        let consumed_until = Some(EventTime::default().plus(self.consumed_ms));
        let progress = Progress { consumed_until, ..Progress::default() };
        self.store().commit(Vec::new(), &progress).expect("a commit");
        let gone = self.gone_ms();
        self.rows.retain(|_, (time, ..)| *time >= gone);
    }

    fn gone_ms(&self) -> u64 {
        (self.consumed_ms / HOUR_MS - KEPT_HOURS) * HOUR_MS
    }

    fn open_with(&mut self, fans: [Option<u8>; 2]) {
        self.store = None;
        let bits_max = self.settings.partitions.ilog2() as u8;
        for (pid, bits) in [X, Y].into_iter().zip(fans) {
            let fanout = bits.map(|bits| 1 << bits.min(bits_max));
            self.settings.apps.insert(pid, AppStore { retention_ms: None, fanout });
        }
        self.store();
    }

    fn write(&mut self, events: &[(u8, u8, u8, u16)]) {
        let consumed_ms = self.consumed_ms;
        let mut last: BTreeMap<u8, _> = BTreeMap::new();
        for (number, hour, spreadid, bytes) in events {
            let time = consumed_ms - 48 * HOUR_MS + u64::from(*hour) * HOUR_MS + 7;
            let text = "x".repeat(usize::from(*bytes));
            last.insert(*number, (time, u32::from(*spreadid), text));
        }
        let mut decisions = Vec::new();
        for (number, row) in last {
            let key = write(event(number, row.0), &[]).key;
            let record = self.store().records(&[key]).expect("a look-up").remove(0);
            let replaced = record.and_then(|record| record.current_row().copied());
            decisions.push(decided(event(number, row.0).ua(&row.2), row.1, replaced));
            self.rows.insert(number, row);
        }
        commit(self.store(), decisions);
    }

    /// Of both apps, as the store must show them.
    fn expected(&self) -> [Vec<Row>; 2] {
        [0, 1].map(|app| {
            let of_app = self.rows.iter().filter(|(number, _)| u8::from(is_of_y(**number)) == app);
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

fn is_of_y(number: u8) -> bool {
    number.is_multiple_of(5)
}

fn event(number: u8, time_ms: u64) -> Draft {
    let draft = activation(&number.to_string(), super::support::facts::millis(time_ms as i64));
    if is_of_y(number) { draft.of_app_y() } else { draft }
}

fn seq(number: u8) -> u64 {
    decided(event(number, 0), 0, None).row.seq
}

/// Both apps' rows, and the keys and bytes of all.
fn scan(reader: &Reader) -> ([Vec<Row>; 2], Vec<(Key, u64)>) {
    let mut keys = Vec::new();
    let rows = apps().map(|app| {
        let mut rows = Vec::new();
        let visit = |key: &RowKey, value: &[u8]| {
            let row = RowView::decode(value).expect("a row");
            let text = format!("{} {}", row.text(TextCell::EventId), row.text(TextCell::Ua));
            rows.push((key.event_time.millis(), key.spreadid.0, key.seq, text));
            keys.push((key.encode(), (key.encode().len() + value.len()) as u64));
            ControlFlow::Continue(())
        };
        reader.scan_rows(&app, EventTime::default(), EventTime::END, visit).expect("a scan");
        rows
    });
    (rows, keys)
}

/// From their end they are the same.
fn check_newest_first(reader: &Reader, rows: &[Vec<Row>; 2]) {
    for (app, rows) in apps().iter().zip(rows) {
        let view = reader.view();
        let range = (EventTime::default(), EventTime::END);
        let mut from_the_end = view.rows_newest_first(app, range).expect("a scan");
        for row in rows.iter().rev() {
            let (key, _) = from_the_end.current().expect("a row").expect("as many rows");
            assert_eq!((key.event_time.millis(), key.spreadid.0, key.seq), (row.0, row.1, row.2));
            from_the_end.advance();
        }
        assert!(from_the_end.current().expect("its end").is_none());
    }
}

/// What each region says, and what there is between its start and the next.
fn figures(reader: &Reader, rows: &[(Key, u64)]) -> [Vec<Figures>; 2] {
    let regions = reader.regions().expect("its own");
    let starts: Vec<Key> = regions.iter().map(|region| region.start).collect();
    assert!(starts.is_sorted() && starts[0] == [0; 24]);
    let mut found = vec![Figures::default(); starts.len()];
    for (key, bytes) in rows {
        let place = starts.partition_point(|start| start <= key) - 1;
        found[place].rows += 1;
        found[place].bytes += bytes;
    }
    [regions.iter().map(|region| region.figures).collect(), found]
}

fn check(bed: &mut Bed) -> Result<(), TestCaseError> {
    let expected = bed.expected();
    let beside = open_for_reading(&bed.settings).expect("the store opens");
    for reader in [bed.store().reader(), beside] {
        let (rows, keys) = scan(&reader);
        prop_assert_eq!(&rows, &expected);
        check_newest_first(&reader, &rows);
        let [told, found] = figures(&reader, &keys);
        prop_assert_eq!(told, found);
        prop_assert_eq!(keys.len() as u64, bed.store().status_counts().values().sum::<u64>());
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
    fn rows_and_figures_are_those_of_a_sorted_map(
        partitions in prop_oneof![Just(1u16), Just(3), Just(64), Just(65_535)],
        steps in steps(),
    ) {
        let mut bed = Bed::new(partitions);
        for step in &steps {
            bed.take(step);
            check(&mut bed)?;
        }
        bed.store = None;
        check(&mut bed)?;
    }
}

/// Writes so many events of app X, an hour apart, a kilobyte each.
fn written(bed: &mut Bed, numbers: std::ops::Range<u8>) {
    let events: Vec<_> = numbers.filter(|n| !is_of_y(*n)).map(|n| (n, n % 72, 1, 1_000)).collect();
    bed.write(&events);
}

#[test]
fn a_region_that_grows_is_split_and_is_merged_when_it_is_empty() {
    let mut bed = Bed::new(64);
    let regions = |bed: &mut Bed| bed.store().reader().regions().expect("its own").iter().len();
    assert_eq!(regions(&mut bed), 8, "as the store was made");
    written(&mut bed, 0..250);
    check(&mut bed).unwrap();
    // 200 kB: at 1 kB there were two, at 8 kB three, at 27 kB four, then one for each 64 kB.
    let split = regions(&mut bed);
    assert!((11..=14).contains(&split), "{split}");
    bed.store = None;
    assert_eq!(regions(&mut bed), split, "after opening again");
    bed.pass(200);
    check(&mut bed).unwrap();
    assert_eq!(regions(&mut bed), 8);
    assert!(bed.rows.is_empty());
}

#[test]
fn rows_in_one_hour_are_one_region() {
    let mut bed = Bed::new(1);
    let events: Vec<_> = (0..250).filter(|n| !is_of_y(*n)).map(|n| (n, 1, 1, 2_900)).collect();
    bed.write(&events);
    check(&mut bed).unwrap();
    assert_eq!(bed.store().reader().regions().expect("its own").iter().len(), 1);
    bed.write(&[(1, 2, 1, 2_900)]);
    assert_eq!(
        bed.store().reader().regions().expect("its own").iter().len(),
        1,
        "grown by less than a quarter"
    );
    written(&mut bed, 0..250);
    check(&mut bed).unwrap();
    assert!(bed.store().reader().regions().expect("its own").iter().len() > 1);
}

#[test]
fn an_export_under_way_is_of_its_moment_while_its_app_is_spread_further() {
    let mut bed = Bed::new(64);
    bed.store = None;
    bed.settings.fanout_above = Some(1);
    written(&mut bed, 0..250);
    let before = bed.expected();
    let reader = bed.store().reader();
    let view = reader.view();
    let mut rows =
        view.rows(&apps()[0], (EventTime::default(), EventTime::END), None).expect("a scan");
    let mut seen = Vec::new();
    let mut fans = Vec::new();
    while let Some((key, _)) = rows.current().expect("a row") {
        seen.push((key.event_time.millis(), key.spreadid.0, key.seq));
        rows.advance();
        if seen.len() % 50 == 0 {
            // All events move by an hour, to other partitions too.
            let events = (0..250).filter(|n| !is_of_y(*n)).map(|n| (n, n % 72 + 1, 1, 9));
            bed.write(&events.collect::<Vec<_>>());
            fans.push(reader.apps().expect("its own")[&X].fanout_bits);
        }
    }
    let expected: Vec<_> = before[0].iter().map(|row| (row.0, row.1, row.2)).collect();
    assert_eq!(seen, expected);
    fans.dedup();
    assert!(fans.len() > 1, "spread further meanwhile: {fans:?}");
    drop(rows);
    check(&mut bed).unwrap();
}

#[test]
fn an_app_that_writes_much_is_spread_by_itself_and_one_with_a_fan_is_not() {
    let mut bed = Bed::new(64);
    bed.store = None;
    bed.settings.fanout_above = Some(1);
    let kept = AppStore { retention_ms: None, fanout: Some(2) };
    bed.settings.apps.insert(Y, kept);
    // A minute's mean: 200 rows are three a second, and 50 of app Y one.
    for _ in 0..3 {
        let events: Vec<_> = (0..=249).map(|n| (n, n % 72, 1, 10)).collect();
        bed.write(&events);
        check(&mut bed).unwrap();
    }
    let fans = |bed: &mut Bed| {
        [X, Y].map(|pid| bed.store().reader().apps().expect("its own")[&pid].fanout_bits)
    };
    let [x, y] = fans(&mut bed);
    assert!(x > 0, "app X is spread");
    assert_eq!(y, 1);
    bed.store = None;
    assert_eq!(fans(&mut bed), [x, y], "after opening again");
    bed.store = None;
    bed.settings.fanout_above = None;
    check(&mut bed).unwrap();
    assert_eq!(fans(&mut bed), [0, 1], "back to one, and what is elsewhere is found");
}

#[test]
fn a_longer_retention_counts_again_what_is_still_there() {
    let mut bed = Bed::new(64);
    written(&mut bed, 0..100);
    let all = bed.rows.clone();
    bed.pass(80);
    check(&mut bed).unwrap();
    assert!(!bed.rows.is_empty() && bed.rows.len() < all.len());
    bed.store = None;
    bed.settings.retention_ms = None;
    bed.rows = all;
    bed.store();
    check(&mut bed).unwrap();
}

#[test]
fn an_app_keeps_its_rows_as_long_as_its_own_settings_say() {
    let mut bed = Bed::new(64);
    bed.store = None;
    bed.settings.apps.insert(Y, AppStore { retention_ms: Some(None), fanout: None });
    let events: Vec<_> = (0..=249).map(|n| (n, n % 72, 1, 10)).collect();
    bed.write(&events);
    let of_y = |(number, _): &(&u8, &(u64, u32, String))| is_of_y(**number);
    let kept: BTreeMap<_, _> =
        bed.rows.iter().filter(of_y).map(|(number, row)| (*number, row.clone())).collect();
    bed.pass(1_000);
    bed.rows = kept;
    check(&mut bed).unwrap();
    bed.store().compact();
    check(&mut bed).unwrap();
}

#[test]
fn reads_are_counted_where_they_are() {
    let mut bed = Bed::new(64);
    written(&mut bed, 0..100);
    let reader = bed.store().reader();
    scan(&reader);
    let read: u64 =
        reader.regions().expect("its own").iter().map(|region| region.reads.total).sum();
    assert_eq!(read, 80);
}
