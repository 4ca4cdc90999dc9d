//! A worker as a member of its group: it joins, reads, commits positions, and crashes.

use attribution::ledger::{Position, Progress};
use attribution::worker::{Batch, BatchReport};

use super::invariants::{self, CheckResult};
use super::world::{SESSION_TIMEOUT, WorkerState, World};

/// The result of a worker's poll.
pub enum Poll {
    Batch(Batch),
    Nothing,
    /// The run has ended.
    Over,
}

impl World<'_> {
    /// Starts a process, which joins the group.
    pub fn start(&mut self, me: usize) {
        self.note(me, "starts", [0, 0]);
        self.stats.count("processes");
        self.workers[me] = WorkerState::default();
        self.broker.group.members.insert(me);
        self.rebalance();
    }

    /// Handles the crash of a process. The worker restarts it later, or never.
    pub fn on_crash(&mut self, me: usize) {
        self.note(me, "crashes", [0, 0]);
        self.stats.count("crashes");
        if self.workers[me].has_written {
            self.stats.count("crashes between two writes of a batch");
        }
        let others = self.workers.iter().filter(|worker| !worker.is_gone).count() - 1;
        self.workers[me] = WorkerState {
            asleep_until: self.tick + self.rng.u64(1..=self.plan.odds.pause_max),
            session_ends_at: Some(self.tick + self.rng.u64(1..=SESSION_TIMEOUT)),
            is_gone: others > 0 && self.rng.u8(0..6) == 0,
            ..WorkerState::default()
        };
    }

    pub fn poll(&mut self, me: usize) -> Poll {
        if self.result.is_some() {
            return Poll::Over;
        }
        self.poll_rebalance(me);
        let has_more = |log: &usize| {
            let next = self.workers[me].next.get(log);
            next.is_some_and(|next| *next < self.broker.logs[*log].messages.len())
        };
        let mut open: Vec<usize> = (0..self.broker.logs.len()).filter(has_more).collect();
        if open.is_empty() {
            self.idle(me);
            return if self.result.is_some() { Poll::Over } else { Poll::Nothing };
        }
        self.rng.shuffle(&mut open);
        let mut remaining = self.rng.usize(1..=self.plan.odds.batch_max);
        let (mut facts, mut next_offsets) = (Vec::new(), Vec::new());
        for log in open {
            let from = self.workers[me].next[&log];
            let messages = &self.broker.logs[log].messages[from..];
            let least = usize::from(facts.is_empty());
            let count = self.rng.usize(least..=remaining.min(messages.len()).max(least));
            remaining = remaining.saturating_sub(count);
            facts.extend(messages[..count].iter().map(|message| message.fact.clone()));
            if count > 0 {
                next_offsets.push((log, from + count));
            }
        }
        next_offsets.sort_unstable();
        let position = |(log, next): &(usize, usize)| self.broker.position(*log, *next);
        let positions = next_offsets.iter().map(position).collect();
        self.note(me, "takes a batch", [facts.len() as u64, next_offsets.len() as u64]);
        self.workers[me].batch = (next_offsets, facts.len());
        Poll::Batch(Batch { facts, progress: Progress { positions, consumed_until: None } })
    }

    /// Rejoins the group if necessary, and starts newly assigned logs at their stored positions.
    fn poll_rebalance(&mut self, me: usize) {
        self.workers[me].session_ends_at = None;
        if self.broker.group.members.insert(me) {
            self.rebalance();
        }
        if self.workers[me].generation == self.broker.group.generation {
            return;
        }
        let before = std::mem::take(&mut self.workers[me].next);
        self.workers[me].generation = self.broker.group.generation;
        for log in 0..self.broker.logs.len() {
            if self.broker.group.is_owner(me, log) {
                let kept = before.get(&log).filter(|_| self.plan.odds.is_cooperative).copied();
                let next = kept.unwrap_or_else(|| self.stored_offset(log));
                self.workers[me].next.insert(log, next);
            }
        }
    }

    /// Sleeps, as there is nothing to read. If all workers are idle, produces more messages, rereads uncommitted ones,
    /// or ends the run.
    fn idle(&mut self, me: usize) {
        self.workers[me].is_idle = true;
        self.workers[me].asleep_until = self.tick + self.rng.u64(1..20);
        if !self.workers.iter().all(|worker| worker.is_gone || worker.is_idle) {
            return;
        }
        if !self.broker.unproduced.is_empty() {
            return self.produce(20);
        }
        let is_read = |world: &mut Self, log: usize| {
            world.stored_offset(log) == world.broker.logs[log].messages.len()
        };
        if (0..self.broker.logs.len()).all(|log| is_read(self, log)) {
            return self.finish(Ok(()));
        }
        self.stats.count("restarts from the stored positions");
        self.restart_from_stored();
    }

    /// Commits the positions of a worker, which may no longer own the partitions.
    pub fn commit_positions(&mut self, me: usize, positions: &[Position]) -> CheckResult {
        let generation = self.workers[me].generation;
        let is_outdated = generation != self.broker.group.generation;
        if is_outdated {
            self.stats.count("batches finished after losing a partition");
        }
        for position in positions {
            let (log, next) = (self.broker.log_of(position), position.next_offset as usize);
            invariants::check_durable(
                self.plan,
                &mut self.model,
                &mut self.broker.logs[log],
                next,
            )?;
            if is_outdated && self.plan.odds.is_fenced {
                self.stats.count("positions refused");
                continue;
            }
            if next < self.stored_offset(log) {
                self.stats.count("positions set back by a former owner");
            }
            self.store_position(position);
        }
        Ok(())
    }

    /// Records that a batch is processed.
    pub fn finish_batch(&mut self, me: usize, report: &BatchReport) -> CheckResult {
        self.stats.count("batches");
        let worker = &mut self.workers[me];
        let (next_offsets, messages) = std::mem::take(&mut worker.batch);
        worker.has_written = false;
        for (log, next) in next_offsets {
            worker.next.entry(log).and_modify(|known| *known = next);
        }
        self.stats.add("messages processed", messages as u64);
        self.counted.add(report, messages)
    }
}
