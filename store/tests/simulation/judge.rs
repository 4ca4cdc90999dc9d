//! What must hold at every moment, and in the end.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::canonical;
use attribution::event::{Fact, Family};
use attribution::ledger::{FactKey, Home, Known, Ledger, Present};
use attribution::matching::fact_key;
use attribution::policy::Policy;
use attribution::row::{EventType, Row, Status, seq};
use attribution::worker::Report;

use super::broker::Log;
use super::plan::{Kind, Plan};
use crate::support::reference::decisions;
use crate::support::run::{Shelf, fed};
use crate::support::traffic::decided;

/// What is wrong.
pub type Verdict = Result<(), String>;

/// Every message before an offset is durable: as a fact, and where it is an event as a row.
pub fn is_kept(
    plan: &Plan,
    (memory, hidden): (&mut Memory, &HashSet<FactKey>),
    log: &mut Log,
    next_offset: usize,
) -> Verdict {
    for offset in log.kept_until..next_offset {
        let fact = &log.messages[offset].fact;
        let place = || format!("{:?} {} offset {offset}", log.topic, log.number);
        let is_hidden = hidden.contains(&fact_key(fact.family(), fact.pid(), fact.id()));
        let found = match is_hidden {
            true => Err("its home was never put".into()),
            false => is_fact_kept(plan, memory, fact),
        };
        found.map_err(|what| format!("a position is ahead of {}: {what}: {fact:?}", place()))?;
    }
    log.kept_until = log.kept_until.max(next_offset);
    Ok(())
}

fn is_fact_kept(plan: &Plan, memory: &mut Memory, fact: &Fact) -> Verdict {
    let key = fact_key(fact.family(), fact.pid(), fact.id());
    let known = memory.known(&[key]).map_err(|error| error.to_string())?.remove(0);
    let home = match known {
        Known::Home(home) => home,
        Known::Row => return is_shown_once(memory, fact, None),
        // The state of touches goes.
        Known::Nothing if plan.kind == Kind::Expiring && fact.family() == Family::Touch => {
            return Ok(());
        }
        Known::Nothing => return Err("there is no such fact".into()),
    };
    let app = plan.policy.app(fact.pid()).expect("a known app");
    let standing = match home.clone() {
        Home::Touch(touch) => Fact::Touch(touch),
        Home::Activation(home) => Fact::Activation(Box::new(home.fact)),
        Home::Effect(home) => Fact::Effect(Box::new(home.fact)),
    };
    // What can not change any more is not replaced.
    if plan.kind != Kind::Expiring
        && canonical::compare(&standing, fact, &app.key) == Ordering::Greater
    {
        return Err(format!("another fact stands: {standing:?}"));
    }
    match home.present() {
        _ if fact.family() == Family::Touch => Ok(()),
        Some(present) => is_shown_once(memory, fact, Some(present)),
        None => Err("nothing is decided about it".into()),
    }
}

/// One event has one row, and it is that of the present decision.
pub fn is_shown_once(memory: &Memory, fact: &Fact, present: Option<&Present>) -> Verdict {
    let event_type = match fact.family() {
        Family::Touch => return Ok(()),
        Family::Activation => EventType::Activation,
        Family::Effect => EventType::Effect,
    };
    let seq = seq(event_type, fact.id());
    let mut rows = memory.rows().filter(|row| (row.pid, row.seq) == (fact.pid(), seq));
    let Some(row) = rows.next() else { return Err("it has no row".into()) };
    if rows.next().is_some() {
        return Err("it has two rows".into());
    }
    let of_row = |row: &Row| (row.revision, row.event_time, row.spreadid);
    match present {
        Some(one) if of_row(row) != (one.revision, one.event_time, one.spreadid) => {
            Err(format!("its row is another than {one:?}: {row:?}"))
        }
        _ => Ok(()),
    }
}

/// The rows are those of the messages, each given once to one worker, in order, and those of the
/// slow reference.
pub fn judge(plan: &Plan, memory: &Memory) -> Verdict {
    differ(&decided(memory.shown()), &decisions(&plan.policy, &plan.facts))?;
    if plan.kind != Kind::Expiring {
        let mut facts = plan.facts.clone();
        facts.sort();
        let whole = |memory: &Memory| -> Vec<String> {
            memory.shown().into_iter().map(|row| row.whole).collect()
        };
        let expected = fed(Memory::default(), &plan.policy, vec![facts]);
        differ(&whole(memory), &whole(expected.ledger()))?;
    }
    Ok(())
}

/// What is decided is what the reference decides about so many messages of each log.
pub fn judge_prefix(
    policy: &Arc<Policy>,
    memory: &Memory,
    logs: &[Log],
    until: &[usize],
) -> Verdict {
    let read = logs.iter().zip(until).flat_map(|(log, until)| &log.messages[..*until]);
    let facts: Vec<Fact> = read.map(|message| message.fact.clone()).collect();
    differ(&decided(memory.shown()), &decisions(policy, &facts))
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
pub struct Counted {
    pub accepted: u64,
    pub redelivered: u64,
    /// Rows by their present status.
    rows: BTreeMap<Status, i64>,
}

impl Counted {
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
    pub fn judge(&self, plan: &Plan, memory: &Memory) -> Verdict {
        let facts: BTreeSet<_> =
            plan.facts.iter().map(|fact| (fact.family(), fact.pid(), fact.id())).collect();
        // A touch that returns after its state has expired is a new one.
        if plan.kind != Kind::Expiring && self.accepted != facts.len() as u64 {
            return Err(format!("{} accepted of {} facts", self.accepted, facts.len()));
        }
        let mut rows: BTreeMap<Status, i64> = BTreeMap::new();
        memory.rows().for_each(|row| *rows.entry(row.status).or_default() += 1);
        let counted: BTreeMap<_, _> =
            self.rows.iter().filter(|(_, count)| **count != 0).map(|(a, b)| (*a, *b)).collect();
        let is_same = counted == rows;
        is_same.then_some(()).ok_or_else(|| format!("{counted:?} were counted, there are {rows:?}"))
    }
}
