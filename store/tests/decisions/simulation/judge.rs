//! What must hold at every moment, and in the end.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adtrail_store::layout::codec::row::RowView;
use adtrail_store::memory::Memory;
use attribution::facts::canonical;
use attribution::facts::event::{EventTime, Fact, Family, Pid, SpreadId};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::Ledger;
use attribution::ledger::record::{CurrentRow, Lookup};
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status, seq};
use attribution::worker::Report;

use super::broker::Log;
use super::plan::{Kind, Plan};
use crate::support::cells::Model;
use crate::support::reference::decisions;
use crate::support::run::{Shelf, fed};
use crate::support::show::{Shown, show_all};
use crate::support::traffic::decided;

/// What is wrong.
pub type Verdict = Result<(), String>;

/// What is stored, whichever store it is.
pub trait Stored {
    /// Whether others may be in the middle of changing it.
    const SHARED: bool;

    fn record(&mut self, key: &FactKey) -> Lookup;

    /// The rows that are shown of one event: revision, time and campaign.
    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)>;

    fn shown(&self) -> Vec<Shown>;

    fn statuses(&self) -> Vec<Status>;
}

impl Stored for Memory {
    const SHARED: bool = false;

    fn record(&mut self, key: &FactKey) -> Lookup {
        self.lookup(&[*key]).expect("memory does not fail").remove(0)
    }

    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)> {
        let rows = self.rows().filter(|row| (row.pid, row.seq) == (pid, seq));
        rows.map(|row| (row.revision, row.event_time, row.spreadid)).collect()
    }

    fn shown(&self) -> Vec<Shown> {
        Shelf::shown(self)
    }

    fn statuses(&self) -> Vec<Status> {
        self.rows().map(|row| row.status).collect()
    }
}

impl Stored for Model {
    const SHARED: bool = true;

    fn record(&mut self, key: &FactKey) -> Lookup {
        Self::record(self, key).map_or(Lookup::Missing, Lookup::Found)
    }

    fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(u32, EventTime, SpreadId)> {
        let rows = Self::rows_of(self, pid, seq).into_iter();
        rows.map(|(key, revision)| (revision, key.event_time, key.spreadid)).collect()
    }

    fn shown(&self) -> Vec<Shown> {
        show_all(&self.rows())
    }

    fn statuses(&self) -> Vec<Status> {
        let status = |value: &[u8]| RowView::decode(value).expect("a row").status;
        self.rows().iter().map(|(_, value)| status(value)).collect()
    }
}

/// Every message before an offset is durable: as a fact, and where it is an event as a row.
pub fn is_kept(
    plan: &Plan,
    stored: &mut impl Stored,
    log: &mut Log,
    next_offset: usize,
) -> Verdict {
    for offset in log.kept_until..next_offset {
        let fact = &log.messages[offset].fact;
        let place = || format!("{:?} {} offset {offset}", log.topic, log.number);
        is_fact_kept(plan, stored, fact)
            .map_err(|what| format!("a position is ahead of {}: {what}: {fact:?}", place()))?;
    }
    log.kept_until = log.kept_until.max(next_offset);
    Ok(())
}

fn is_fact_kept(plan: &Plan, stored: &mut impl Stored, fact: &Fact) -> Verdict {
    let key = fact_key(fact.family(), fact.pid(), fact.id());
    let record = match stored.record(&key) {
        Lookup::Found(record) | Lookup::Superseded(record, _) => record,
        Lookup::Tombstone => return is_shown_once(stored, fact, None),
        // The state of touches goes.
        Lookup::Missing if plan.kind == Kind::Expiring && fact.family() == Family::Touch => {
            return Ok(());
        }
        Lookup::Missing => return Err("there is no such fact".into()),
    };
    let app = plan.policy.app(fact.pid()).expect("a known app");
    let standing = Fact::from(record.clone());
    // What can not change any more is not replaced.
    if plan.kind != Kind::Expiring
        && canonical::compare(&standing, fact, &app.key) == Ordering::Greater
    {
        return Err(format!("another fact stands: {standing:?}"));
    }
    match record.current_row() {
        _ if fact.family() == Family::Touch => Ok(()),
        Some(current_row) => is_shown_once(stored, fact, Some(current_row)),
        None => Err("nothing is decided about it".into()),
    }
}

/// One event has one row, and it is that of the present decision; or, while others may be in the middle of
/// changing it, of one before.
pub fn is_shown_once<S: Stored>(
    stored: &S,
    fact: &Fact,
    current_row: Option<&CurrentRow>,
) -> Verdict {
    let event_type = match fact.family() {
        Family::Touch => return Ok(()),
        Family::Activation => EventType::Activation,
        Family::Effect => EventType::Effect,
    };
    let rows = stored.rows_of(fact.pid(), seq(event_type, fact.id()));
    let Some(row) = rows.first() else { return Err("it has no row".into()) };
    let expected = current_row.map(|one| (one.revision, one.event_time, one.spreadid));
    if S::SHARED {
        let is_ahead = expected.is_some_and(|expected| rows.iter().any(|row| row.0 > expected.0));
        return if is_ahead { Err(format!("a row is ahead of {expected:?}")) } else { Ok(()) };
    }
    if rows.len() > 1 {
        return Err("it has two rows".into());
    }
    match expected {
        Some(expected) if *row != expected => {
            Err(format!("its row is another than {expected:?}: {row:?}"))
        }
        _ => Ok(()),
    }
}

/// The rows are those of the messages, each given once to one worker, in order, and those of the
/// slow reference.
pub fn judge(plan: &Plan, stored: &impl Stored) -> Verdict {
    differ(&decided(stored.shown()), &decisions(&plan.policy, &plan.facts))?;
    if plan.kind != Kind::Expiring {
        let mut facts = plan.facts.clone();
        facts.sort();
        let whole =
            |rows: Vec<Shown>| -> Vec<String> { rows.into_iter().map(|row| row.whole).collect() };
        let expected = fed(Memory::default(), &plan.policy, vec![facts]);
        differ(&whole(stored.shown()), &whole(Stored::shown(expected.ledger())))?;
    }
    Ok(())
}

/// What is decided is what the reference decides about so many messages of each log.
pub fn judge_prefix(
    policy: &Arc<Policy>,
    stored: &impl Stored,
    logs: &[Log],
    until: &[usize],
) -> Verdict {
    let read = logs.iter().zip(until).flat_map(|(log, until)| &log.messages[..*until]);
    let facts: Vec<Fact> = read.map(|message| message.fact.clone()).collect();
    differ(&decided(stored.shown()), &decisions(policy, &facts))
}

fn differ(found: &[String], expected: &[String]) -> Verdict {
    let places = 0..found.len().max(expected.len());
    let other = places.into_iter().find(|place| found.get(*place) != expected.get(*place));
    other.map_or(Ok(()), |place| {
        Err(format!(
            "row {place} is\n  {:?}\nand should be\n  {:?}",
            found.get(place),
            expected.get(place)
        ))
    })
}

/// What the workers counted.
#[derive(Debug, Clone, Default)]
pub struct SummaryKey {
    pub accepted: u64,
    pub redelivered: u64,
    /// Rows by their present status.
    rows: BTreeMap<Status, i64>,
}

impl SummaryKey {
    /// Every message of a batch is accepted or redelivered.
    pub fn add(&mut self, report: &Report, messages: usize) -> Verdict {
        let (mut accepted, mut redelivered) = (0, 0);
        for family in Family::ALL {
            let admitted = report.admitted(family);
            accepted += admitted.accepted;
            redelivered += admitted.redelivered;
        }
        self.accepted += accepted;
        self.redelivered += redelivered;
        for ((left, entered), count) in &report.decided {
            let count = i64::try_from(*count).expect("few rows");
            *self.rows.entry(*entered).or_default() += count;
            if let Some(left) = left {
                *self.rows.entry(*left).or_default() -= count;
            }
        }
        let is_all = accepted + redelivered == messages as u64;
        is_all.then_some(()).ok_or_else(|| {
            format!("{accepted} accepted and {redelivered} redelivered of {messages} messages")
        })
    }

    /// Where no count was lost with a process: all facts were accepted once, and the rows are so
    /// many of each status.
    pub fn judge(&self, plan: &Plan, stored: &impl Stored) -> Verdict {
        let facts: BTreeSet<_> =
            plan.facts.iter().map(|fact| (fact.family(), fact.pid(), fact.id())).collect();
        // A touch that returns after its state has expired is a new one.
        if plan.kind != Kind::Expiring && self.accepted != facts.len() as u64 {
            return Err(format!("{} accepted of {} facts", self.accepted, facts.len()));
        }
        let mut rows: BTreeMap<Status, i64> = BTreeMap::new();
        stored.statuses().into_iter().for_each(|status| *rows.entry(status).or_default() += 1);
        let counted: BTreeMap<_, _> =
            self.rows.iter().filter(|(_, count)| **count != 0).map(|(a, b)| (*a, *b)).collect();
        let is_same = counted == rows;
        is_same.then_some(()).ok_or_else(|| format!("{counted:?} were counted, there are {rows:?}"))
    }
}
