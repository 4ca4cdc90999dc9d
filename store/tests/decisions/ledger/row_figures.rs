//! What is known of rows without reading them, against the rows: counts, and what campaigns brought.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::campaign_index::CreditedActivation;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use adtrail_store::layout::summary_counts::{Dimensions, QUARTER_MS, SummaryKey, Totals};
use adtrail_store::reader::Reader;
use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::ledger::record::FactRecord;
use attribution::ledger::{DecisionWrite, Facts, Ledger, Progress};
use attribution::rules::policy::HOUR_MS;
use attribution::rules::row::{InstallType, Status};
use config::{AppStore, Store};
use proptest::prelude::*;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use tempfile::TempDir;

use super::rows::{commit, decided};
use super::support::facts::{Draft, activation, effect};
use super::support::rules::{X, Y, apps, rules};
use super::support::run::settings;
use super::write;

/// What is said of an event, another thing each time: also its time and what its fact says.
#[derive(Debug, Clone, Copy)]
struct Said {
    number: u8,
    quarter: u16,
    spreadid: u8,
    status: u8,
    install_type: u8,
    /// Which name, currency and amount.
    fact: u8,
}

#[derive(Debug, Clone)]
enum Step {
    Say(Vec<Said>),
    /// Everything is consumed up to so many hours later.
    Pass(u8),
    /// Closed, and opened with another fanout of app X and another retention, in hours.
    Open(Option<u8>, Option<u8>),
    Compact,
}

fn said() -> impl Strategy<Value = Said> {
    let event = (any::<u8>(), 0..40u16, 0..3u8);
    (event, 0..6u8, 0..4u8, 0..9u8).prop_map(
        |((number, quarter, spreadid), status, install_type, fact)| Said {
            number,
            // Some beside each other, the others over three days.
            quarter: if quarter < 12 { quarter } else { quarter * 7 },
            spreadid,
            status,
            install_type,
            fact,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => proptest::collection::vec(said(), 1..60).prop_map(Step::Say),
        2 => (1..30u8).prop_map(Step::Pass),
        2 => (proptest::option::of(0..4u8), proptest::option::of(24..200u8))
            .prop_map(|(fanout, hours)| Step::Open(fanout, hours)),
        1 => Just(Step::Compact),
    ];
    proptest::collection::vec(step, 1..25)
}

const START_MS: u64 = 20_000 * 24 * HOUR_MS;

struct Bed {
    _dir: TempDir,
    settings: Store,
    store: Option<Embedded>,
    consumed_ms: u64,
}

impl Bed {
    fn new() -> Self {
        let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
        let mut settings = settings(dir.path());
        settings.retention_ms = Some(96 * HOUR_MS);
        let mut bed = Self { _dir: dir, settings, store: None, consumed_ms: START_MS };
        bed.pass(0);
        bed
    }

    fn store(&mut self) -> &mut Embedded {
        let open = || Embedded::open(&self.settings, &rules()).expect("the store opens");
        self.store.get_or_insert_with(open)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Say(said) => self.say(said),
            Step::Pass(hours) => self.pass(u64::from(*hours)),
            Step::Open(fanout, hours) => {
                self.store = None;
                let fanout = fanout.map(|bits| 1 << bits);
                self.settings.apps.insert(X, AppStore { retention_ms: None, fanout });
                self.settings.retention_ms = hours.map(|hours| u64::from(hours) * HOUR_MS);
                self.store();
            }
            Step::Compact => self.store().compact(),
        }
    }

    fn pass(&mut self, hours: u64) {
        self.consumed_ms += hours * HOUR_MS;
        let consumed_until = Some(EventTime::default().plus(self.consumed_ms));
        let progress = Progress { consumed_until, ..Progress::default() };
        self.store().commit(Vec::new(), &progress).expect("a commit");
    }

    fn say(&mut self, said: &[Said]) {
        let start_ms = self.consumed_ms - 48 * HOUR_MS;
        let last: BTreeMap<u8, &Said> = said.iter().map(|said| (said.number, said)).collect();
        let mut decisions = Vec::new();
        for said in last.into_values() {
            let key = write(event(said, start_ms), &[]).key;
            let record = self.store().records(&[key]).expect("a look-up").remove(0);
            decisions.push(decision(said, start_ms, record.as_ref()));
        }
        commit(self.store(), decisions);
    }
}

/// Every third is an activation, every fifth of app Y.
fn event(said: &Said, start_ms: u64) -> Draft {
    let id = said.number.to_string();
    let within = u64::from(said.fact) * 99_000;
    let time = super::support::facts::millis(
        (start_ms + u64::from(said.quarter) * QUARTER_MS + within) as i64,
    );
    let draft = if said.number.is_multiple_of(3) {
        activation(&id, time)
    } else {
        let draft =
            effect(&id, time).name(["purchase", "activation", "a\0b"][usize::from(said.fact % 3)]);
        match said.fact / 3 {
            0 => draft.revenue("9.90", "CNY"),
            1 => draft.revenue("-0.000000000000000000000000000001", "USD"),
            _ => draft,
        }
    };
    if said.number.is_multiple_of(5) { draft.of_app_y() } else { draft }
}

fn decision(said: &Said, start_ms: u64, record: Option<&FactRecord>) -> DecisionWrite {
    let replaced = record.and_then(|record| record.current_row().copied());
    let mut decided = decided(event(said, start_ms), u32::from(said.spreadid), replaced);
    decided.row.status = Status::ALL[usize::from(said.status)];
    decided.row.install_type = InstallType::ALL.get(usize::from(said.install_type)).copied();
    if let Some(current_row) = decided.record.current_row_mut() {
        current_row.status = decided.row.status;
    }
    decided
}

type Counts = BTreeMap<Vec<u8>, Totals>;
/// Of each campaign the rows, newest first.
type BroughtRows = BTreeMap<(Pid, SpreadId), Vec<RowKey>>;

fn of_rows(reader: &Reader, range: (EventTime, EventTime)) -> (Counts, BroughtRows) {
    let (mut counts, mut brought) = (Counts::new(), BroughtRows::new());
    for app in apps() {
        let visit = |key: &RowKey, value: &[u8]| {
            let row = RowView::decode(value).expect("a row");
            let counted = SummaryKey::new(key, Dimensions::of_view(&row)).encode();
            counts.entry(counted).or_default().add(&Totals::row(row.text(TextCell::Revenue)));
            if CreditedActivation::has(row.event_type, row.status) {
                brought.entry((key.pid, key.spreadid)).or_default().push(*key);
            }
            ControlFlow::Continue(())
        };
        reader.scan_rows(&app, range.0, range.1, visit).expect("a scan");
    }
    let newest_first = |key: &RowKey| (std::cmp::Reverse(key.event_time), key.seq);
    brought.values_mut().for_each(|rows| rows.sort_by_key(newest_first));
    (counts, brought)
}

fn told(reader: &Reader, range: (EventTime, EventTime), page: usize) -> (Counts, BroughtRows) {
    let (mut counts, mut brought) = (Counts::new(), BroughtRows::new());
    let view = reader.view();
    for pid in [X, Y] {
        view.counts(pid, range, |counted, count| {
            assert_eq!(counts.insert(counted.encode(), *count), None);
            ControlFlow::Continue(())
        })
        .expect("counts");
        for spreadid in (0..3).map(SpreadId) {
            let mut rows: Vec<RowKey> = Vec::new();
            loop {
                let after = rows.last().map(CreditedActivation::of);
                let found = view.brought(pid, spreadid, range, after, page).expect("a page");
                rows.extend(found.iter().map(|(key, _)| *key));
                if found.len() < page {
                    break;
                }
            }
            brought.extend(Some(((pid, spreadid), rows)).filter(|(_, rows)| !rows.is_empty()));
        }
    }
    (counts, brought)
}

fn check(bed: &mut Bed) -> Result<(), TestCaseError> {
    let beside = open_for_reading(&bed.settings).expect("the store opens");
    let day = EventTime::default().plus(bed.consumed_ms - 24 * HOUR_MS);
    for reader in [bed.store().reader(), beside] {
        for range in [(EventTime::default(), EventTime::END), (day, day.plus(5 * QUARTER_MS))] {
            prop_assert_eq!(told(&reader, range, 3), of_rows(&reader, range));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: testbed::length(8, 24),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn what_is_read_without_the_rows_is_what_they_say(steps in steps()) {
        let mut bed = Bed::new();
        for step in &steps {
            bed.take(step);
            check(&mut bed)?;
        }
        bed.store = None;
        check(&mut bed)?;
    }
}

/// Entries that are passed while something is read, of any table.
fn passed(read: impl FnOnce()) -> u64 {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut context = PerfContext::default();
    context.reset();
    read();
    context.metric(PerfMetric::InternalKeySkippedCount)
        + context.metric(PerfMetric::InternalMergeCount)
        + context.metric(PerfMetric::BlockReadCount)
}

/// A store with so many attributed activations, of which none is another in any count.
fn with_rows(count: u32) -> Bed {
    let mut bed = Bed::new();
    let start_ms = bed.consumed_ms;
    let decisions = (0..count).map(|number| {
        let draft = activation(
            &format!("a{number}"),
            super::support::facts::millis(start_ms as i64 + i64::from(number)),
        );
        let mut decided = decided(draft, 1, None);
        decided.row.status = Status::Attributed;
        decided
    });
    commit(bed.store(), decisions);
    bed.store().compact();
    bed
}

#[test]
fn what_is_read_does_not_grow_with_the_rows() {
    let all = (EventTime::default(), EventTime::END);
    let read = |count: u32| {
        let mut bed = with_rows(count);
        let reader = bed.store().reader();
        let view = reader.view();
        let counts = passed(|| {
            let mut found = 0;
            view.counts(X, all, |_, count| {
                found += count.rows;
                ControlFlow::Continue(())
            })
            .expect("counts");
            assert_eq!(found, i64::from(count));
        });
        let brought = passed(|| {
            let found = view.brought(X, SpreadId(1), all, None, 10).expect("a page");
            assert_eq!(found.len(), 10);
            let newest = found[0].0.event_time.millis();
            assert_eq!(newest, START_MS + u64::from(count) - 1);
        });
        let rows = passed(|| drop(of_rows(&reader, all)));
        (counts, brought, rows)
    };
    let (few, many) = (read(100), read(5_000));
    assert_eq!(few.0, many.0, "counts");
    assert!(few.0 < 10, "{few:?}");
    assert!(many.1 <= few.1 + 3, "a page of what was brought: {few:?} {many:?}");
    assert!(many.2 >= few.2 + 4_000, "the rows themselves: {few:?} {many:?}");
}
