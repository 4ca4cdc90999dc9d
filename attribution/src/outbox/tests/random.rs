//! Random sequences of changes of one record.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::outbox::record::OutboxEntry;

const NAMES: [&str; 3] = ["a", "b", "hook"];

#[derive(Debug, Clone)]
enum Step {
    /// A decision with this credit is committed; 0 is organic.
    Decide(u64),
    /// The decision before is written again, by a worker that was paused.
    Repeat,
    /// Delivery settles the entries that are due, and sends them or not.
    Deliver {
        fails: bool,
    },
    /// Delivery begins attempts, and ends before it finishes them.
    Crash {
        has_sent: bool,
    },
    Retry,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u64).prop_map(Step::Decide),
        1 => Just(Step::Repeat),
        4 => any::<bool>().prop_map(|fails| Step::Deliver { fails }),
        1 => any::<bool>().prop_map(|has_sent| Step::Crash { has_sent }),
        1 => Just(Step::Retry),
        6 => (0..100_000_u64).prop_map(Step::Wait),
    ]
}

struct World {
    record: OutboxRecord,
    late_credit: LateCredit,
    now_ms: u64,
    revision: u32,
    credit: u64,
    before: Vec<PlannedCallback>,
    /// The credits that were sent, by ad network, and how often. A crash may repeat the last one.
    sent: Vec<(EndpointId, u64)>,
    crashed: bool,
}

impl World {
    fn new(late_credit: LateCredit) -> Self {
        Self {
            record: OutboxRecord::new(event()),
            late_credit,
            now_ms: 0,
            revision: 0,
            credit: 0,
            before: Vec::new(),
            sent: Vec::new(),
            crashed: false,
        }
    }

    fn plans(&self, before: u64) -> Vec<PlannedCallback> {
        let plan = |name, kind| planned(name, kind, self.credit, self.revision);
        let mut plans = match self.credit {
            0 => Vec::new(),
            // Two campaigns of network a, one of network b.
            1 | 2 => vec![plan("a", CallbackKind::Activation)],
            _ => vec![plan("b", CallbackKind::Activation)],
        };
        if self.credit != 0 {
            plans.push(plan("hook", CallbackKind::ActivationAttributed));
        }
        if self.revision > 1 && before != self.credit {
            plans.push(plan("hook", CallbackKind::ActivationChanged));
        }
        plans
    }

    fn take(&mut self, step: &Step) {
        let now = at(self.now_ms);
        match step {
            Step::Decide(credit) => {
                let before = std::mem::replace(&mut self.credit, *credit);
                self.revision += 1;
                let plans = self.plans(before);
                plans.iter().for_each(|planned| self.record.plan(planned, now));
                self.before = plans;
            }
            Step::Repeat => self.before.iter().for_each(|plan| self.record.plan(plan, now)),
            Step::Deliver { fails } => self.deliver(*fails, now),
            Step::Crash { has_sent } => {
                self.crashed = true;
                for entry in self.due(now) {
                    if self.settle(&entry, now) == Settlement::Send {
                        self.record.claim(&entry.endpoint, entry.kind, now, LEASE_MS).unwrap();
                        if *has_sent && !entry.kind.is_webhook() {
                            self.sent.push((entry.endpoint, entry.credit.fingerprint));
                        }
                    }
                }
            }
            Step::Retry => {
                self.record.retry(|_| true, now);
            }
            Step::Wait(ms) => self.now_ms += ms,
        }
    }

    fn due(&self, now: EventTime) -> Vec<OutboxEntry> {
        self.record.entries.iter().filter(|entry| entry.is_due(now)).cloned().collect()
    }

    fn settle(&self, entry: &OutboxEntry, now: EventTime) -> Settlement {
        let entry = self.record.entry(&entry.endpoint, entry.kind).unwrap();
        settle(&self.record, entry, Some(credit(self.credit)), self.late_credit, now)
    }

    fn deliver(&mut self, fails: bool, now: EventTime) {
        for entry in self.due(now) {
            let outcome = match self.settle(&entry, now) {
                Settlement::Wait => panic!("it is due"),
                Settlement::Later { due } => {
                    let entry = self.record.entry(&entry.endpoint, entry.kind).unwrap();
                    let claim = self.record.claim_of(entry);
                    assert!(self.record.finish(&claim, &Outcome::Later { due }, now));
                    continue;
                }
                Settlement::Drop => Outcome::Dropped { note: "".into() },
                Settlement::Withhold => Outcome::Withheld,
                Settlement::TooOld => Outcome::TooOld,
                Settlement::Send if fails => {
                    Outcome::Dead { note: "400".into(), maybe_sent: false }
                }
                Settlement::Send => {
                    if !entry.kind.is_webhook() {
                        self.sent.push((entry.endpoint.clone(), entry.credit.fingerprint));
                    }
                    Outcome::Sent { note: "200".into() }
                }
            };
            let claim = self.record.claim(&entry.endpoint, entry.kind, now, LEASE_MS).unwrap();
            assert!(self.record.finish(&claim, &outcome, now));
        }
    }

    fn check(&self) {
        for entry in &self.record.entries {
            let pending = u64::from(entry.is_pending());
            assert_eq!(entry.tally.made, entry.tally.finished() + pending, "{entry:?}");
            assert_eq!(entry.tally.pending(), pending);
        }
        let keys = self.record.entries.iter().map(|entry| (&entry.endpoint, entry.kind));
        assert!(keys.is_sorted_by(|a, b| a < b));
    }
}

proptest! {
    #[test]
    fn made_is_always_the_sum_of_the_outcomes(
        steps in prop::collection::vec(step(), 1..60),
        sends_late in any::<bool>(),
    ) {
        let late_credit = if sends_late { LateCredit::Send } else { LateCredit::Withhold };
        let mut world = World::new(late_credit);
        for step in &steps {
            world.take(step);
            world.check();
        }
        // Once nothing changes, everything is finished.
        for _ in 0..3 {
            world.now_ms += 10 * SETTLE_MS;
            world.deliver(false, at(world.now_ms));
        }
        world.check();
        prop_assert_eq!(world.record.due(), None);
        let is_finished = |name: &&str| {
            world.record.counts().get(&endpoint(name)).is_none_or(|tally| tally.pending() == 0)
        };
        prop_assert!(NAMES.iter().all(is_finished));
        let mut times: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, fingerprint) in &world.sent {
            *times.entry(*fingerprint).or_default() += 1;
        }
        if sends_late {
            return Ok(());
        }
        prop_assert!(times.len() <= 1, "two credits were sent: {:?}", world.sent);
        if world.crashed {
            return Ok(());
        }
        prop_assert!(times.values().all(|count| *count == 1), "sent twice: {:?}", world.sent);
    }

    /// The present credit is reported unless another one was sent before.
    #[test]
    fn the_last_credit_is_sent_if_no_other_was(
        steps in prop::collection::vec(step(), 1..60),
        last in 1..4_u64,
    ) {
        let mut world = World::new(LateCredit::Withhold);
        for step in &steps {
            world.take(step);
        }
        let had_sent = !world.sent.is_empty();
        let had_failed =
            world.record.entries.iter().any(|entry| entry.state == EntryState::Dead);
        world.take(&Step::Decide(last));
        world.now_ms += LEASE_MS + SETTLE_MS;
        world.deliver(false, at(world.now_ms));
        // What was in progress then counts as sent.
        if !had_sent && !had_failed && !world.crashed && world.now_ms <= MAX_AGE_MS {
            let sent: Vec<u64> = world.sent.iter().map(|(_, fingerprint)| *fingerprint).collect();
            prop_assert_eq!(sent, vec![last]);
        }
    }
}
