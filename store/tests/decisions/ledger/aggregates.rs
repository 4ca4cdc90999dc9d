//! Compares the aggregates (counts, and the index of credited activations by campaign) with the rows.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use adtrail_store::embedded::open_for_reading;
use adtrail_store::layout::campaign_index::CreditedActivation;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use adtrail_store::layout::summary_counts::{Dimensions, QUARTER_MS, SummaryKey, Totals};
use adtrail_store::reader::Reader;
use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::ledger::DecisionWrite;
use attribution::rules::policy::HOUR_MS;
use attribution::rules::row::{InstallType, Status};
use config::AppStore;
use proptest::prelude::*;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

use super::StoreFixture;
use super::rows::{commit, decision_write};
use super::support::facts::{Draft, activation, effect};
use super::support::rules::{X, Y, apps};

/// A decision about an event. A later one may change everything, even the fact and its time.
#[derive(Debug, Clone, Copy)]
struct DrawnDecision {
    number: u8,
    quarter: u16,
    spreadid: u8,
    status: u8,
    install_type: u8,
    /// Selects name, currency and amount.
    fact: u8,
}

#[derive(Debug, Clone)]
enum Step {
    Decide(Vec<DrawnDecision>),
    /// Advances the consumed time by hours.
    Advance(u8),
    /// Reopens the store with another fanout of app X, as a power of two, and another retention in hours.
    Reopen(Option<u8>, Option<u8>),
    Compact,
}

fn drawn_decision() -> impl Strategy<Value = DrawnDecision> {
    let event = (any::<u8>(), 0..40u16, 0..3u8);
    (event, 0..6u8, 0..4u8, 0..9u8).prop_map(
        |((number, quarter, spreadid), status, install_type, fact)| DrawnDecision {
            number,
            // Some quarter-hours are adjacent, the others are distributed over three days.
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
        6 => proptest::collection::vec(drawn_decision(), 1..60).prop_map(Step::Decide),
        2 => (1..30u8).prop_map(Step::Advance),
        2 => (proptest::option::of(0..4u8), proptest::option::of(24..200u8))
            .prop_map(|(fanout, hours)| Step::Reopen(fanout, hours)),
        1 => Just(Step::Compact),
    ];
    proptest::collection::vec(step, 1..25)
}

impl StoreFixture {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Decide(drawn) => self.decide(drawn),
            Step::Advance(hours) => self.advance(u64::from(*hours)),
            Step::Reopen(fanout, hours) => {
                self.store = None;
                let fanout = fanout.map(|bits| 1 << bits);
                self.settings.apps.insert(X, AppStore { retention_ms: None, fanout });
                self.settings.retention_ms = hours.map(|hours| u64::from(hours) * HOUR_MS);
                self.store();
            }
            Step::Compact => self.store().compact().unwrap(),
        }
    }

    fn decide(&mut self, drawn: &[DrawnDecision]) {
        let start_ms = self.consumed_ms - 48 * HOUR_MS;
        let last: BTreeMap<u8, &DrawnDecision> =
            drawn.iter().map(|drawn| (drawn.number, drawn)).collect();
        let decisions: Vec<_> =
            last.into_values().map(|drawn| self.decision(drawn, start_ms)).collect();
        commit(self.store(), decisions);
    }

    fn decision(&mut self, drawn: &DrawnDecision, start_ms: u64) -> DecisionWrite {
        let event = || event(drawn, start_ms);
        let replaced = self.current_row(event());
        let mut decision = decision_write(event(), u32::from(drawn.spreadid), replaced);
        decision.row.status = Status::ALL[usize::from(drawn.status)];
        decision.row.install_type = InstallType::ALL.get(usize::from(drawn.install_type)).copied();
        if let Some(current_row) = decision.record.current_row_mut() {
            current_row.status = decision.row.status;
        }
        decision
    }
}

/// Returns the event of a decision. Every third is an activation; every fifth belongs to app Y.
fn event(drawn: &DrawnDecision, start_ms: u64) -> Draft {
    let id = drawn.number.to_string();
    let offset_ms = u64::from(drawn.fact) * 99_000;
    let time = super::support::facts::millis(
        (start_ms + u64::from(drawn.quarter) * QUARTER_MS + offset_ms) as i64,
    );
    let draft = if drawn.number.is_multiple_of(3) {
        activation(&id, time)
    } else {
        let draft =
            effect(&id, time).name(["purchase", "activation", "a\0b"][usize::from(drawn.fact % 3)]);
        match drawn.fact / 3 {
            0 => draft.revenue("9.90", "CNY"),
            1 => draft.revenue("-0.000000000000000000000000000001", "USD"),
            _ => draft,
        }
    };
    if drawn.number.is_multiple_of(5) { draft.of_app_y() } else { draft }
}

type Counts = BTreeMap<Vec<u8>, Totals>;
/// The rows of each campaign, newest first.
type CreditedRows = BTreeMap<(Pid, SpreadId), Vec<RowKey>>;

/// Computes the aggregates from the rows.
fn expected(reader: &Reader, range: Range<EventTime>) -> (Counts, CreditedRows) {
    let (mut counts, mut credited) = (Counts::new(), CreditedRows::new());
    for app in apps() {
        let visit = |key: &RowKey, value: &[u8]| {
            let row = RowView::decode(value).expect("a valid row");
            let summary_key = SummaryKey::new(key, Dimensions::of_view(&row)).encode();
            counts.entry(summary_key).or_default().add(&Totals::row(row.text(TextCell::Revenue)));
            if CreditedActivation::has(row.event_type, row.status) {
                credited.entry((key.pid, key.spreadid)).or_default().push(*key);
            }
            ControlFlow::Continue(())
        };
        reader.scan_rows(&app, range.start, range.end, visit).expect("the scan succeeds");
    }
    let newest_first = |key: &RowKey| (std::cmp::Reverse(key.event_time), key.seq);
    credited.values_mut().for_each(|rows| rows.sort_by_key(newest_first));
    (counts, credited)
}

/// Reads the stored aggregates, the index in pages.
fn stored(reader: &Reader, range: Range<EventTime>, page: usize) -> (Counts, CreditedRows) {
    let (mut counts, mut credited) = (Counts::new(), CreditedRows::new());
    let view = reader.view();
    for pid in [X, Y] {
        view.counts(pid, range.clone(), |key, totals| {
            assert_eq!(counts.insert(key.encode(), *totals), None);
            ControlFlow::Continue(())
        })
        .expect("the counts are readable");
        for spreadid in (0..3).map(SpreadId) {
            let mut rows: Vec<RowKey> = Vec::new();
            loop {
                let after = rows.last().map(CreditedActivation::of);
                let found = view
                    .credited_activations(pid, spreadid, range.clone(), after, page)
                    .expect("the page is readable");
                rows.extend(found.iter().map(|(key, _)| *key));
                if found.len() < page {
                    break;
                }
            }
            credited.extend(Some(((pid, spreadid), rows)).filter(|(_, rows)| !rows.is_empty()));
        }
    }
    (counts, credited)
}

fn check(fixture: &mut StoreFixture) -> Result<(), TestCaseError> {
    let reopened = open_for_reading(&fixture.settings).expect("the store opens");
    let day = EventTime::default().plus(fixture.consumed_ms - 24 * HOUR_MS);
    for reader in [fixture.store().reader(), reopened] {
        for range in [EventTime::default()..EventTime::END, day..day.plus(5 * QUARTER_MS)] {
            prop_assert_eq!(stored(&reader, range.clone(), 3), expected(&reader, range));
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
    fn aggregates_match_the_rows(steps in steps()) {
        let mut fixture = StoreFixture::new(|_| ());
        for step in &steps {
            fixture.apply(step);
            check(&mut fixture)?;
        }
        fixture.store = None;
        check(&mut fixture)?;
    }
}

/// Returns how many keys `read` skips, operands it merges and blocks it reads, over all tables.
fn read_cost(read: impl FnOnce()) -> u64 {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut context = PerfContext::default();
    context.reset();
    read();
    context.metric(PerfMetric::InternalKeySkippedCount)
        + context.metric(PerfMetric::InternalMergeCount)
        + context.metric(PerfMetric::BlockReadCount)
}

/// Returns a store with `count` attributed activations, which are all counted under one key.
fn with_rows(count: u32) -> StoreFixture {
    let mut fixture = StoreFixture::new(|_| ());
    let start_ms = fixture.consumed_ms;
    let decisions = (0..count).map(|number| {
        let draft = activation(
            &format!("a{number}"),
            super::support::facts::millis(start_ms as i64 + i64::from(number)),
        );
        let mut decision = decision_write(draft, 1, None);
        decision.row.status = Status::Attributed;
        decision
    });
    commit(fixture.store(), decisions);
    fixture.store().compact().unwrap();
    fixture
}

#[test]
fn the_cost_of_reading_aggregates_does_not_grow_with_the_number_of_rows() {
    let all = EventTime::default()..EventTime::END;
    let read = |count: u32| {
        let mut fixture = with_rows(count);
        let reader = fixture.store().reader();
        let view = reader.view();
        let counts = read_cost(|| {
            let mut found = 0;
            view.counts(X, all.clone(), |_, totals| {
                found += totals.rows;
                ControlFlow::Continue(())
            })
            .expect("the counts are readable");
            assert_eq!(found, i64::from(count));
        });
        let credited = read_cost(|| {
            let found = view
                .credited_activations(X, SpreadId(1), all.clone(), None, 10)
                .expect("the page is readable");
            assert_eq!(found.len(), 10);
            let newest = found[0].0.event_time.millis();
            assert_eq!(newest, fixture.consumed_ms + u64::from(count) - 1);
        });
        let rows = read_cost(|| drop(expected(&reader, all.clone())));
        (counts, credited, rows)
    };
    let (few, many) = (read(100), read(5_000));
    assert_eq!(few.0, many.0, "counts");
    assert!(few.0 < 10, "{few:?}");
    assert!(many.1 <= few.1 + 3, "a page of credited activations: {few:?} {many:?}");
    assert!(many.2 >= few.2 + 4_000, "the rows themselves: {few:?} {many:?}");
}
