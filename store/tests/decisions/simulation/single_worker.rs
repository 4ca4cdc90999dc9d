//! One process with its own store: commits are atomic, and the last ones can be lost in a power failure.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::ledger::{Ledger, Progress};
use attribution::worker::limits::ReadLimits;
use attribution::worker::{Batch, BatchReport, Worker};
use fastrand::Rng;

use super::broker::Broker;
use super::crashing_ledger::{Crash, CrashingLedger};
use super::invariants::{self, CheckResult, ReportTotals};
use super::plan::{Kind, Plan};
use super::stats::{Stats, Trace};
use crate::support::traffic;
use crate::threads::divided_among;

/// The number of commits that a power failure can lose.
const UNSYNCED: usize = 4;

struct Machine<'p> {
    plan: &'p Plan,
    rng: Rng,
    broker: Broker,
    disk: Disk,
    /// The state before each of the last commits.
    past: Vec<Disk>,
    /// The next offset to read of each log.
    next: Vec<usize>,
    /// The offset of each log up to which facts may be stored without their position, after a crash between pages.
    recorded: Vec<usize>,
    batches: u64,
    faults_remaining: u32,
    /// True if a report was lost in a crash.
    is_report_lost: bool,
    stats: Stats,
    trace: Trace,
}

/// The durable state.
#[derive(Clone)]
struct Disk {
    memory: Memory,
    /// The offset up to which each log was verified to be durable.
    durable_until: Vec<usize>,
    counted: ReportTotals,
}

pub fn run(plan: &Plan, broker: Broker, rng: Rng, trace: Trace) -> (CheckResult, Stats, Trace) {
    let memory = match plan.kind {
        Kind::Expiring => Memory::with_expiry(&plan.policy),
        _ => Memory::default(),
    };
    let counted = ReportTotals::default();
    let disk = Disk { memory, durable_until: Vec::new(), counted };
    let mut machine = Machine {
        plan,
        rng,
        broker,
        disk,
        past: Vec::new(),
        next: Vec::new(),
        recorded: Vec::new(),
        batches: 0,
        faults_remaining: plan.odds.faults_max,
        is_report_lost: false,
        stats: Stats::default(),
        trace,
    };
    let result = machine.run();
    (result, machine.stats, machine.trace)
}

impl Machine<'_> {
    fn run(&mut self) -> CheckResult {
        loop {
            if !self.broker.unproduced.is_empty() && self.rng.u8(0..4) == 0 {
                let count = self.rng.usize(1..=20);
                self.broker.produce(count);
            }
            self.next.resize(self.broker.logs.len(), 0);
            let ends = self.draw_batch();
            if ends != self.next {
                self.process(ends)?;
                self.inject_fault()?;
            } else if self.broker.unproduced.is_empty() {
                invariants::check_final_rows(self.plan, &self.disk.memory)?;
                invariants::check_callbacks(self.plan, &mut self.disk.memory.clone())?;
                if !self.is_report_lost {
                    self.disk.counted.check(self.plan, &self.disk.memory)?;
                }
                return Ok(());
            }
        }
    }

    /// Draws the end offsets of the next batch.
    fn draw_batch(&mut self) -> Vec<usize> {
        let mut ends = self.next.clone();
        let mut remaining = self.rng.usize(1..=self.plan.odds.batch_max);
        let has_more = |log: &usize| self.next[*log] < self.broker.logs[*log].messages.len();
        let mut open: Vec<usize> = (0..self.next.len()).filter(has_more).collect();
        self.rng.shuffle(&mut open);
        for log in open {
            let unread = self.broker.logs[log].messages.len() - ends[log];
            let least = usize::from(ends == self.next);
            let count = self.rng.usize(least..=remaining.min(unread).max(least));
            remaining = remaining.saturating_sub(count);
            ends[log] += count;
        }
        ends
    }

    fn process(&mut self, ends: Vec<usize>) -> CheckResult {
        let batch = self.batch(&ends);
        let messages = batch.facts.len();
        self.stats.count("batches");
        self.batches += 1;
        let numbers = [messages as u64, ends.iter().sum::<usize>() as u64];
        self.trace.note((self.batches, 0), "takes a batch", numbers);
        let crash = self.draw_crash();
        let before = self.disk.clone();
        let durable = before.memory.clone();
        let memory = &mut self.disk.memory;
        let ledger = CrashingLedger { memory, durable, calls: 0, commits: 0, crash };
        // Every second batch commits its decisions on stored effects page by page.
        let bytes = if self.batches.is_multiple_of(2) { 1 } else { ReadLimits::default().bytes };
        let limits = ReadLimits { bytes, ..ReadLimits::default() };
        let worker = Worker::with_limits(ledger, Arc::clone(&self.plan.policy), limits);
        // Every fourth batch is divided among threads.
        let threads = if self.batches.is_multiple_of(4) { 3 } else { 1 };
        let worker = worker.with_parallelism(divided_among(threads));
        let mut worker = worker.with_interests(invariants::interests(&self.plan.policy));
        let positions = batch.progress.positions.clone();
        let outcome = worker.process(batch);
        let CrashingLedger { calls, commits, .. } = *worker.ledger();
        self.stats.add("steps", calls.into());
        let mut durable = worker.ledger().durable.clone();
        let stored = durable.positions().expect("memory does not fail");
        let is_complete = positions.iter().all(|position| stored.contains(position));
        match outcome {
            Ok(report) => {
                self.stats.count(if commits > 1 { "batches in pages" } else { "batches at once" });
                self.finish_commit(before, ends, Some((&report, messages)))
            }
            Err(_) if crash == Some(Crash::AfterCommit) && is_complete => {
                self.stats.count("responses lost");
                self.is_report_lost = true;
                self.finish_commit(before, ends, None)?;
                self.restart()
            }
            Err(_) => {
                let is_between = commits > 0;
                let name =
                    if is_between { "crashes between pages" } else { "crashes before a commit" };
                self.stats.count(name);
                if is_between {
                    self.is_report_lost = true;
                    self.recorded.resize(ends.len(), 0);
                    let recorded = self.recorded.iter_mut().zip(ends);
                    recorded.for_each(|(recorded, end)| *recorded = end.max(*recorded));
                }
                self.disk = Disk { memory: durable, ..before };
                self.restart()
            }
        }
    }

    fn batch(&mut self, ends: &[usize]) -> Batch {
        let (mut facts, mut positions) = (Vec::new(), Vec::new());
        for (log, (from, end)) in self.next.iter().zip(ends).enumerate() {
            let messages = &self.broker.logs[log].messages[*from..*end];
            facts.extend(messages.iter().map(|message| message.fact.clone()));
            if !messages.is_empty() {
                positions.push(self.broker.position(log, *end));
            }
        }
        let consumed_until = (self.plan.kind == Kind::Expiring)
            .then(|| {
                let logs = self.broker.logs.iter().map(|log| log.messages.clone());
                traffic::low_watermark(&logs.collect::<Vec<_>>(), ends)
            })
            .flatten();
        Batch { facts, progress: Progress { positions, consumed_until } }
    }

    fn finish_commit(
        &mut self,
        before: Disk,
        ends: Vec<usize>,
        report: Option<(&BatchReport, usize)>,
    ) -> CheckResult {
        self.past.push(before);
        if self.past.len() > UNSYNCED {
            self.past.remove(0);
        }
        if let Some((report, messages)) = report {
            self.stats.add("messages processed", messages as u64);
            self.disk.counted.add(report, messages)?;
        }
        self.next = ends;
        self.check_durable()?;
        let mut ends = self.disk.durable_until.iter().zip(&self.recorded);
        let has_all_recorded = ends.all(|(durable, recorded)| durable >= recorded);
        if self.rng.u8(0..8) == 0 && has_all_recorded {
            let Self { plan, disk, broker, .. } = self;
            invariants::check_rows_so_far(
                &plan.policy,
                &disk.memory,
                &broker.logs,
                &disk.durable_until,
            )?;
        }
        Ok(())
    }

    fn draw_crash(&mut self) -> Option<Crash> {
        if !self.draw_fault() {
            return None;
        }
        let is_after = self.rng.u8(0..4) == 0;
        Some(match is_after {
            true => Crash::AfterCommit,
            false => Crash::AfterCalls(self.rng.u32(0..12)),
        })
    }

    fn draw_fault(&mut self) -> bool {
        let one_in = (self.plan.odds.fault / 4).max(2);
        let has_fault = self.faults_remaining > 0 && self.rng.u32(0..one_in) == 0;
        self.faults_remaining -= u32::from(has_fault);
        has_fault
    }

    /// Draws a fault between two batches.
    fn inject_fault(&mut self) -> CheckResult {
        if !self.draw_fault() {
            return Ok(());
        }
        if self.plan.kind != Kind::Expiring && self.rng.bool() && !self.past.is_empty() {
            self.stats.count("power failures");
            let lost = self.rng.usize(0..self.past.len());
            self.disk = self.past[lost].clone();
            self.past.truncate(lost);
        } else {
            self.stats.count("positions rewound");
            let log = self.rng.usize(0..self.next.len());
            let offset = self.rng.usize(0..=self.next[log]);
            let positions = vec![self.broker.position(log, offset)];
            let progress = Progress { positions, consumed_until: None };
            self.disk.memory.commit(Vec::new(), &progress).expect("memory does not fail");
        }
        self.restart()
    }

    /// Starts a new process at the stored positions.
    fn restart(&mut self) -> CheckResult {
        self.trace.note((self.batches, 0), "starts", [0, 0]);
        self.next.fill(0);
        for position in self.disk.memory.positions().expect("memory does not fail") {
            let log = self.broker.log_of(&position);
            self.next[log] = position.next_offset as usize;
        }
        self.check_durable()
    }

    /// Checks that everything before the next offsets is durable.
    fn check_durable(&mut self) -> CheckResult {
        self.disk.durable_until.resize(self.next.len(), 0);
        for (index, next) in self.next.iter().enumerate() {
            let log = &mut self.broker.logs[index];
            log.durable_until = self.disk.durable_until[index];
            invariants::check_durable(self.plan, &mut self.disk.memory, log, *next)?;
            self.disk.durable_until[index] = log.durable_until;
        }
        Ok(())
    }
}
