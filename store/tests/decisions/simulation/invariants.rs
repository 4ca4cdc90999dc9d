//! The invariants that must hold at every step, and those that must hold at the end of a run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adtrail_store::hbase::ledger::cells::Table;
use adtrail_store::layout::codec::row::RowView;
use adtrail_store::layout::{codec, key};
use adtrail_store::memory::Memory;
use attribution::facts::canonical;
use attribution::facts::event::{EventTime, Fact, Family, IdSpace, Pid, SpreadId};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::Ledger;
use attribution::ledger::record::{CurrentRow, Lookup};
use attribution::outbox::interest::Interests;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{CallbackKind, CreditMark, EndpointId, OutboxRecord};
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status, seq};
use attribution::worker::BatchReport;

use super::broker::Log;
use super::plan::{Kind, Plan};
use crate::support::cells::Model;
use crate::support::outbox::interest;
use crate::support::reference::decisions;
use crate::support::row_text::{RowText, row_texts};
use crate::support::run::{LedgerUnderTest, worker_after};
use crate::support::traffic::sorted_decisions;

/// `Err` describes the violated invariant.
pub type CheckResult = Result<(), String>;

/// A store whose content can be checked.
pub trait CheckedStore {
    /// True if other workers may be changing it at the same time.
    const SHARED: bool;

    fn record(&mut self, key: &FactKey) -> Lookup;

    /// Returns revision, time and campaign of the visible rows of one event.
    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)>;

    fn row_texts(&self) -> Vec<RowText>;

    fn statuses(&self) -> Vec<Status>;

    /// Returns the callbacks about an event.
    fn callbacks(&mut self, event: &FactKey) -> Option<OutboxRecord>;
}

impl CheckedStore for Memory {
    const SHARED: bool = false;

    fn record(&mut self, key: &FactKey) -> Lookup {
        self.lookup(&[*key]).expect("memory does not fail").remove(0)
    }

    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)> {
        let rows = self.rows().filter(|row| (row.pid, row.seq) == (pid, seq));
        rows.map(|row| (row.revision, row.event_time, row.spreadid)).collect()
    }

    fn row_texts(&self) -> Vec<RowText> {
        LedgerUnderTest::row_texts(self)
    }

    fn statuses(&self) -> Vec<Status> {
        self.rows().map(|row| row.status).collect()
    }

    fn callbacks(&mut self, event: &FactKey) -> Option<OutboxRecord> {
        self.records_of(&[*event]).expect("memory does not fail").remove(0)
    }
}

impl CheckedStore for Model {
    const SHARED: bool = true;

    fn record(&mut self, key: &FactKey) -> Lookup {
        Self::record(self, key).map_or(Lookup::Missing, Lookup::Found)
    }

    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)> {
        let rows = Self::rows_of(self, pid, seq).into_iter();
        rows.map(|(key, revision)| (revision, key.event_time, key.spreadid)).collect()
    }

    fn row_texts(&self) -> Vec<RowText> {
        row_texts(&self.rows())
    }

    fn statuses(&self) -> Vec<Status> {
        let status = |value: &[u8]| RowView::decode(value).expect("a valid row").status;
        self.rows().iter().map(|(_, value)| status(value)).collect()
    }

    fn callbacks(&mut self, event: &FactKey) -> Option<OutboxRecord> {
        let key = key::record(event);
        let value = self.get(Table::Outbox, &key)?;
        Some(codec::outbox::decode(&key, &value).expect("a valid record"))
    }
}

/// Checks that every message before an offset is durable as a fact and, if it is an event, as a row.
pub fn check_durable(
    plan: &Plan,
    store: &mut impl CheckedStore,
    log: &mut Log,
    next_offset: usize,
) -> CheckResult {
    for offset in log.durable_until..next_offset {
        let fact = &log.messages[offset].fact;
        let location = || format!("{:?} {} offset {offset}", log.topic, log.number);
        check_fact_durable(plan, store, fact).map_err(|problem| {
            format!("the position has passed {}, but {problem}: {fact:?}", location())
        })?;
    }
    log.durable_until = log.durable_until.max(next_offset);
    Ok(())
}

fn check_fact_durable(plan: &Plan, store: &mut impl CheckedStore, fact: &Fact) -> CheckResult {
    let key = fact_key(fact.id_space(), fact.pid(), fact.id());
    let is_touch = key.family == Family::Touch;
    let record = match store.record(&key) {
        Lookup::Found(record) | Lookup::Superseded(record, _) => record,
        Lookup::Tombstone => return check_single_row(store, fact, None),
        // Touches expire without a tombstone.
        Lookup::Missing if plan.kind == Kind::Expiring && is_touch => {
            return Ok(());
        }
        Lookup::Missing => return Err("the fact is missing".into()),
    };
    let app = plan.policy.app(fact.pid()).expect("the app is configured");
    let current = Fact::from(record.clone());
    // With expiry, facts whose decisions are final are not replaced.
    if plan.kind != Kind::Expiring
        && canonical::compare(&current, fact, &app.key) == Ordering::Greater
    {
        return Err(format!("a message with greater content is the fact: {current:?}"));
    }
    match record.current_row() {
        _ if is_touch => Ok(()),
        Some(current_row) => check_single_row(store, fact, Some(current_row)),
        None => Err("the event has no decision".into()),
    }
}

/// Checks that an event has one row, which is that of the current decision. In a shared store, other workers may be
/// changing the row, so it may also be of an earlier decision.
pub fn check_single_row<S: CheckedStore>(
    store: &S,
    fact: &Fact,
    current_row: Option<&CurrentRow>,
) -> CheckResult {
    let event_type = match fact.id_space() {
        IdSpace::Click | IdSpace::Impression => return Ok(()),
        IdSpace::Activation => EventType::Activation,
        IdSpace::Effect => EventType::Effect,
    };
    let rows = store.rows_of(fact.pid(), seq(event_type, fact.id()));
    let Some(row) = rows.first() else { return Err("the event has no row".into()) };
    let expected = current_row.map(|row| (row.revision, row.event_time, row.spreadid));
    if S::SHARED {
        let is_ahead = expected.is_some_and(|expected| rows.iter().any(|row| row.0 > expected.0));
        return if is_ahead { Err(format!("a row is newer than {expected:?}")) } else { Ok(()) };
    }
    if rows.len() > 1 {
        return Err("the event has two rows".into());
    }
    match expected {
        Some(expected) if *row != expected => {
            Err(format!("the row of the event is {row:?} instead of {expected:?}"))
        }
        _ => Ok(()),
    }
}

/// Checks that the rows are those of a single worker that processes each message once, in order, and those of the slow
/// reference.
pub fn check_final_rows(plan: &Plan, store: &impl CheckedStore) -> CheckResult {
    compare(&sorted_decisions(store.row_texts()), &decisions(&plan.policy, &plan.facts))?;
    if plan.kind != Kind::Expiring {
        let mut facts = plan.facts.clone();
        facts.sort();
        let whole =
            |rows: Vec<RowText>| -> Vec<String> { rows.into_iter().map(|row| row.whole).collect() };
        let expected = worker_after(Memory::default(), &plan.policy, vec![facts]);
        compare(&whole(store.row_texts()), &whole(CheckedStore::row_texts(expected.ledger())))?;
    }
    Ok(())
}

/// Checks that each attributed event has a pending callback about its present credit: nothing delivers them. Callbacks
/// about other credits are dropped when they are due.
pub fn check_callbacks(plan: &Plan, store: &mut impl CheckedStore) -> CheckResult {
    for fact in &plan.facts {
        let kind = match fact.id_space() {
            IdSpace::Click | IdSpace::Impression => continue,
            IdSpace::Activation => CallbackKind::Activation,
            IdSpace::Effect => CallbackKind::Effect,
        };
        let key = fact_key(fact.id_space(), fact.pid(), fact.id());
        let (Lookup::Found(record) | Lookup::Superseded(record, _)) = store.record(&key) else {
            continue;
        };
        let Some(row) = record.current_row().filter(|row| row.status == Status::Attributed) else {
            continue;
        };
        let callbacks = store.callbacks(&key);
        let entry = callbacks.as_ref().and_then(|all| all.entry(&endpoint(), kind));
        let is_reported = entry.is_some_and(|entry| {
            let decision = record.activation().and_then(|record| record.decision.as_ref());
            let present = decision.map(|decision| CreditMark::of_credit(&decision.credit));
            entry.is_pending()
                && entry.credit.spreadid == row.spreadid
                && present.is_none_or(|present| present == entry.credit)
        });
        if !is_reported {
            return Err(format!("no callback reports {fact:?} as {row:?}, but {callbacks:?}"));
        }
    }
    Ok(())
}

fn endpoint() -> EndpointId {
    EndpointId::new("network")
}

/// Returns the interest of the endpoint of [`check_callbacks`].
pub fn interests(policy: &Arc<Policy>) -> Arc<Interests> {
    Arc::new(Interests::new(vec![interest(endpoint().as_str())], Arc::clone(policy)))
}

/// Checks that the decisions are those of the reference for the messages of each log before its offset in `ends`.
pub fn check_rows_so_far(
    policy: &Arc<Policy>,
    store: &impl CheckedStore,
    logs: &[Log],
    ends: &[usize],
) -> CheckResult {
    let read = logs.iter().zip(ends).flat_map(|(log, end)| &log.messages[..*end]);
    let facts: Vec<Fact> = read.map(|message| message.fact.clone()).collect();
    compare(&sorted_decisions(store.row_texts()), &decisions(policy, &facts))
}

fn compare(found: &[String], expected: &[String]) -> CheckResult {
    let mut rows = 0..found.len().max(expected.len());
    let first = rows.find(|row| found.get(*row) != expected.get(*row));
    first.map_or(Ok(()), |row| {
        Err(format!(
            "row {row} is\n  {:?}\nand should be\n  {:?}",
            found.get(row),
            expected.get(row)
        ))
    })
}

/// Sums of the workers' reports.
#[derive(Debug, Clone, Default)]
pub struct ReportTotals {
    pub accepted: u64,
    pub redelivered: u64,
    /// Rows by their current status.
    rows: BTreeMap<Status, i64>,
}

impl ReportTotals {
    /// Adds a report. Checks that every message of the batch is accepted or redelivered.
    pub fn add(&mut self, report: &BatchReport, messages: usize) -> CheckResult {
        let (mut accepted, mut redelivered) = (0, 0);
        for family in Family::ALL {
            let counts = report.counts(family);
            accepted += counts.accepted;
            redelivered += counts.redelivered;
        }
        self.accepted += accepted;
        self.redelivered += redelivered;
        for ((before, after), count) in &report.rows_written {
            let count = i64::try_from(*count).expect("the count fits in i64");
            *self.rows.entry(*after).or_default() += count;
            if let Some(before) = before {
                *self.rows.entry(*before).or_default() -= count;
            }
        }
        let is_all = accepted + redelivered == messages as u64;
        is_all.then_some(()).ok_or_else(|| {
            format!("{accepted} accepted and {redelivered} redelivered of {messages} messages")
        })
    }

    /// Checks that every fact was accepted once, and that the store has as many rows of each status as reported.
    /// Requires that no report was lost in a crash.
    pub fn check(&self, plan: &Plan, store: &impl CheckedStore) -> CheckResult {
        let facts: BTreeSet<_> =
            plan.facts.iter().map(|fact| (fact.id_space() as u8, fact.pid(), fact.id())).collect();
        // A touch that is redelivered after it has expired is accepted again.
        if plan.kind != Kind::Expiring && self.accepted != facts.len() as u64 {
            return Err(format!("{} accepted of {} facts", self.accepted, facts.len()));
        }
        let mut rows: BTreeMap<Status, i64> = BTreeMap::new();
        store.statuses().into_iter().for_each(|status| *rows.entry(status).or_default() += 1);
        let counted: BTreeMap<_, _> =
            self.rows.iter().filter(|(_, count)| **count != 0).map(|(s, n)| (*s, *n)).collect();
        let is_same = counted == rows;
        is_same
            .then_some(())
            .ok_or_else(|| format!("{counted:?} were reported, the store has {rows:?}"))
    }
}
