//! One process with a store of its own: what it commits is there whole or not at all, and the
//! last of it can be lost with the power.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::ledger::{Ledger, Progress};
use attribution::worker::{Batch, Report, Worker};
use fastrand::Rng;

use super::broker::Broker;
use super::judge::{self, SummaryKey, Verdict};
use super::mortal::{Death, Mortal};
use super::plan::{Kind, Plan};
use super::tally::{Tally, Trace};
use crate::support::traffic;

/// So many past commits can be lost with the power.
const UNSYNCED: usize = 4;

struct Machine<'p> {
    plan: &'p Plan,
    rng: Rng,
    broker: Broker,
    disk: Disk,
    /// As it was before each of the last commits.
    past: Vec<Disk>,
    /// The next offset to read of each log.
    next: Vec<usize>,
    batches: u64,
    troubles_left: u32,
    /// A count was lost with a process.
    is_uncounted: bool,
    tally: Tally,
    trace: Trace,
}

/// What is durable.
#[derive(Clone)]
struct Disk {
    memory: Memory,
    /// How far each log was ever committed.
    kept: Vec<usize>,
    counted: SummaryKey,
}

pub fn run(plan: &Plan, broker: Broker, rng: Rng, trace: Trace) -> (Verdict, Tally, Trace) {
    let memory = match plan.kind {
        Kind::Expiring => Memory::with_expiry(&plan.policy),
        _ => Memory::default(),
    };
    let disk = Disk { memory, kept: Vec::new(), counted: SummaryKey::default() };
    let mut machine = Machine {
        plan,
        rng,
        broker,
        disk,
        past: Vec::new(),
        next: Vec::new(),
        batches: 0,
        troubles_left: plan.odds.troubles_max,
        is_uncounted: false,
        tally: Tally::default(),
        trace,
    };
    let verdict = machine.work();
    (verdict, machine.tally, machine.trace)
}

impl Machine<'_> {
    fn work(&mut self) -> Verdict {
        loop {
            if !self.broker.coming.is_empty() && self.rng.u8(0..4) == 0 {
                let count = self.rng.usize(1..=20);
                self.broker.produce(count);
            }
            self.next.resize(self.broker.logs.len(), 0);
            let until = self.take();
            if until != self.next {
                self.process(until)?;
                self.suffer()?;
            } else if self.broker.coming.is_empty() {
                judge::judge(self.plan, &self.disk.memory)?;
                if !self.is_uncounted {
                    self.disk.counted.judge(self.plan, &self.disk.memory)?;
                }
                return Ok(());
            }
        }
    }

    /// Up to where the next batch reads.
    fn take(&mut self) -> Vec<usize> {
        let mut until = self.next.clone();
        let mut left = self.rng.usize(1..=self.plan.odds.batch_max);
        let has_more = |place: &usize| self.next[*place] < self.broker.logs[*place].messages.len();
        let mut open: Vec<usize> = (0..self.next.len()).filter(has_more).collect();
        self.rng.shuffle(&mut open);
        for place in open {
            let there = self.broker.logs[place].messages.len() - until[place];
            let least = usize::from(until == self.next);
            let count = self.rng.usize(least..=left.min(there).max(least));
            left = left.saturating_sub(count);
            until[place] += count;
        }
        until
    }

    fn process(&mut self, until: Vec<usize>) -> Verdict {
        let batch = self.batch(&until);
        let messages = batch.facts.len();
        self.tally.count("batches");
        self.batches += 1;
        let note = [messages as u64, until.iter().sum::<usize>() as u64];
        self.trace.note((self.batches, 0), "takes a batch", note);
        let death = self.draw_death();
        let before = self.disk.clone();
        let durable = before.memory.clone();
        let mortal = Mortal { memory: &mut self.disk.memory, durable, calls: 0, death };
        let mut worker = Worker::new(mortal, Arc::clone(&self.plan.policy));
        let outcome = worker.process(batch);
        self.tally.add("steps", worker.ledger().calls.into());
        let durable = worker.ledger().durable.clone();
        match outcome {
            Ok(report) => self.committed(before, until, Some((&report, messages))),
            Err(_) if death == Some(Death::AfterCommit) => {
                self.tally.count("answers lost");
                self.is_uncounted = true;
                self.committed(before, until, None)?;
                self.restart()
            }
            Err(_) => {
                self.tally.count("deaths before a commit");
                self.disk = Disk { memory: durable, ..before };
                self.restart()
            }
        }
    }

    fn batch(&mut self, until: &[usize]) -> Batch {
        let (mut facts, mut positions) = (Vec::new(), Vec::new());
        for (place, (from, until)) in self.next.iter().zip(until).enumerate() {
            let messages = &self.broker.logs[place].messages[*from..*until];
            facts.extend(messages.iter().map(|message| message.fact.clone()));
            if !messages.is_empty() {
                positions.push(self.broker.position(place, *until));
            }
        }
        let consumed_until = (self.plan.kind == Kind::Expiring)
            .then(|| {
                let logs = self.broker.logs.iter().map(|log| log.messages.clone());
                traffic::consumed(&logs.collect::<Vec<_>>(), until)
            })
            .flatten();
        Batch { facts, progress: Progress { positions, consumed_until } }
    }

    fn committed(
        &mut self,
        before: Disk,
        until: Vec<usize>,
        report: Option<(&Report, usize)>,
    ) -> Verdict {
        self.past.push(before);
        if self.past.len() > UNSYNCED {
            self.past.remove(0);
        }
        if let Some((report, messages)) = report {
            self.tally.add("messages processed", messages as u64);
            self.disk.counted.add(report, messages)?;
        }
        self.next = until;
        self.is_kept()?;
        if self.rng.u8(0..8) == 0 {
            let Self { plan, disk, broker, .. } = self;
            judge::judge_prefix(&plan.policy, &disk.memory, &broker.logs, &disk.kept)?;
        }
        Ok(())
    }

    fn draw_death(&mut self) -> Option<Death> {
        if !self.is_troubled() {
            return None;
        }
        let is_after = self.rng.u8(0..4) == 0;
        Some(if is_after { Death::AfterCommit } else { Death::Before(self.rng.u32(0..12)) })
    }

    fn is_troubled(&mut self) -> bool {
        let one_in = (self.plan.odds.trouble / 4).max(2);
        let is_troubled = self.troubles_left > 0 && self.rng.u32(0..one_in) == 0;
        self.troubles_left -= u32::from(is_troubled);
        is_troubled
    }

    /// What can happen between two batches.
    fn suffer(&mut self) -> Verdict {
        if !self.is_troubled() {
            return Ok(());
        }
        if self.plan.kind != Kind::Expiring && self.rng.bool() && !self.past.is_empty() {
            self.tally.count("power failures");
            let lost = self.rng.usize(0..self.past.len());
            self.disk = self.past[lost].clone();
            self.past.truncate(lost);
        } else {
            self.tally.count("positions rewound");
            let place = self.rng.usize(0..self.next.len());
            let offset = self.rng.usize(0..=self.next[place]);
            let positions = vec![self.broker.position(place, offset)];
            let progress = Progress { positions, consumed_until: None };
            self.disk.memory.commit(Vec::new(), &progress).expect("memory does not fail");
        }
        self.restart()
    }

    /// Another process begins at the stored positions.
    fn restart(&mut self) -> Verdict {
        self.trace.note((self.batches, 0), "starts", [0, 0]);
        self.next.fill(0);
        for position in self.disk.memory.positions().expect("memory does not fail") {
            let place = self.broker.place(&position);
            self.next[place] = position.next_offset as usize;
        }
        self.is_kept()
    }

    /// Everything before the next offsets is durable.
    fn is_kept(&mut self) -> Verdict {
        self.disk.kept.resize(self.next.len(), 0);
        for (place, next) in self.next.iter().enumerate() {
            let log = &mut self.broker.logs[place];
            log.kept_until = self.disk.kept[place];
            judge::is_kept(self.plan, &mut self.disk.memory, log, *next)?;
            self.disk.kept[place] = log.kept_until;
        }
        Ok(())
    }
}
