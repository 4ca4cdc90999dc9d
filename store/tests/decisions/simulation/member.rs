//! What a worker does in its group: it joins, reads, gives positions, and dies.

use attribution::ledger::{Position, Progress};
use attribution::worker::{Batch, Report};

use super::judge::{self, Verdict};
use super::world::{Hand, SESSION, World};

/// What a worker does next.
pub enum Poll {
    Batch(Batch),
    Nothing,
    Over,
}

impl World<'_> {
    /// A process starts and joins the group.
    pub fn start(&mut self, me: usize) {
        self.note(me, "starts", [0, 0]);
        self.tally.count("processes");
        self.hands[me] = Hand::default();
        self.broker.group.members.insert(me);
        self.rebalance();
    }

    /// A process has ended. It may be the last of this worker.
    pub fn died(&mut self, me: usize) {
        self.note(me, "dies", [0, 0]);
        self.tally.count("deaths");
        if self.hands[me].has_written {
            self.tally.count("deaths between two writes of a batch");
        }
        let others = self.hands.iter().filter(|hand| !hand.is_gone).count() - 1;
        self.hands[me] = Hand {
            asleep_until: self.tick + self.rng.u64(1..=self.plan.odds.pause_max),
            given_up_at: Some(self.tick + self.rng.u64(1..=SESSION)),
            is_gone: others > 0 && self.rng.u8(0..6) == 0,
            ..Hand::default()
        };
    }

    pub fn poll(&mut self, me: usize) -> Poll {
        if self.end.is_some() {
            return Poll::Over;
        }
        self.keep_up(me);
        let has_more = |place: &usize| {
            let next = self.hands[me].next.get(place);
            next.is_some_and(|next| *next < self.broker.logs[*place].messages.len())
        };
        let mut open: Vec<usize> = (0..self.broker.logs.len()).filter(has_more).collect();
        if open.is_empty() {
            self.rest(me);
            return if self.end.is_some() { Poll::Over } else { Poll::Nothing };
        }
        self.rng.shuffle(&mut open);
        let mut left = self.rng.usize(1..=self.plan.odds.batch_max);
        let (mut facts, mut nexts) = (Vec::new(), Vec::new());
        for place in open {
            let from = self.hands[me].next[&place];
            let messages = &self.broker.logs[place].messages[from..];
            let least = usize::from(facts.is_empty());
            let count = self.rng.usize(least..=left.min(messages.len()).max(least));
            left = left.saturating_sub(count);
            facts.extend(messages[..count].iter().map(|message| message.fact.clone()));
            if count > 0 {
                nexts.push((place, from + count));
            }
        }
        nexts.sort_unstable();
        let of = |(place, next): &(usize, usize)| self.broker.position(*place, *next);
        let positions = nexts.iter().map(of).collect();
        self.note(me, "takes a batch", [facts.len() as u64, nexts.len() as u64]);
        self.hands[me].batch = (nexts, facts.len());
        Poll::Batch(Batch { facts, progress: Progress { positions, consumed_until: None } })
    }

    /// Learns which logs are its own now, and begins at their stored positions.
    fn keep_up(&mut self, me: usize) {
        self.hands[me].given_up_at = None;
        if self.broker.group.members.insert(me) {
            self.rebalance();
        }
        if self.hands[me].generation == self.broker.group.generation {
            return;
        }
        let before = std::mem::take(&mut self.hands[me].next);
        self.hands[me].generation = self.broker.group.generation;
        for place in 0..self.broker.logs.len() {
            if self.broker.group.is_owner(me, place) {
                let kept = before.get(&place).filter(|_| self.plan.odds.is_cooperative).copied();
                let next = kept.unwrap_or_else(|| self.stored(place));
                self.hands[me].next.insert(place, next);
            }
        }
    }

    /// There is nothing to read. If that is so for all, it goes on, or it is over.
    fn rest(&mut self, me: usize) {
        self.hands[me].is_idle = true;
        self.hands[me].asleep_until = self.tick + self.rng.u64(1..20);
        if !self.hands.iter().all(|hand| hand.is_gone || hand.is_idle) {
            return;
        }
        if !self.broker.coming.is_empty() {
            return self.produce(20);
        }
        let is_read = |world: &mut Self, place: usize| {
            world.stored(place) == world.broker.logs[place].messages.len()
        };
        if (0..self.broker.logs.len()).all(|place| is_read(self, place)) {
            return self.finish(Ok(()));
        }
        self.tally.count("read again from the stored positions");
        self.begin_again();
    }

    /// Positions that a worker gives; whether or not it is late.
    pub fn take_positions(&mut self, me: usize, positions: &[Position]) -> Verdict {
        let generation = self.hands[me].generation;
        let is_late = generation != self.broker.group.generation;
        if is_late {
            self.tally.count("batches finished by whoever was no owner any more");
        }
        for position in positions {
            let (place, next) = (self.broker.place(position), position.next_offset as usize);
            let log = &mut self.broker.logs[place];
            judge::is_kept(self.plan, &mut self.model, log, next)?;
            if is_late && self.plan.odds.is_fenced {
                self.tally.count("positions refused");
                continue;
            }
            if next < self.stored(place) {
                self.tally.count("positions set back by whoever was late");
            }
            self.store(position);
        }
        Ok(())
    }

    /// A batch is done.
    pub fn processed(&mut self, me: usize, report: &Report) -> Verdict {
        self.tally.count("batches");
        let hand = &mut self.hands[me];
        let (nexts, messages) = std::mem::take(&mut hand.batch);
        hand.has_written = false;
        for (place, next) in nexts {
            hand.next.entry(place).and_modify(|known| *known = next);
        }
        self.tally.add("messages processed", messages as u64);
        self.counted.add(report, messages)
    }
}
