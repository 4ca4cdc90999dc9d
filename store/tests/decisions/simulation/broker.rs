//! A broker: partitions with messages, and one consumer group.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use attribution::facts::event::Family;
use attribution::ledger::Position;
use fastrand::Rng;

use crate::support::traffic::Message;

#[derive(Debug, Default)]
pub struct Broker {
    pub logs: Vec<Log>,
    /// Messages that are not produced yet, with family and number of their partitions.
    pub unproduced: VecDeque<(Family, i32, Message)>,
    pub group: Group,
}

/// A partition.
#[derive(Debug)]
pub struct Log {
    pub topic: Family,
    pub number: i32,
    pub messages: Vec<Message>,
    /// Everything before this offset was verified to be durable.
    pub durable_until: usize,
}

/// The consumer group.
#[derive(Debug, Default)]
pub struct Group {
    /// Incremented by every rebalance.
    pub generation: u64,
    pub members: BTreeSet<usize>,
    /// The owner of each log.
    owners: Vec<Option<usize>>,
}

impl Broker {
    /// Appends the next messages. Returns whether a partition was added.
    pub fn produce(&mut self, count: usize) -> bool {
        let before = self.logs.len();
        for _ in 0..count {
            let Some((topic, number, message)) = self.unproduced.pop_front() else { break };
            let log = self.find_or_add_log(topic, number);
            self.logs[log].messages.push(message);
        }
        self.logs.len() > before
    }

    /// Returns the index of a partition's log, which is added if it is missing.
    pub fn find_or_add_log(&mut self, topic: Family, number: i32) -> usize {
        let is_wanted = |log: &Log| (log.topic, log.number) == (topic, number);
        self.logs.iter().position(is_wanted).unwrap_or_else(|| {
            self.logs.push(Log { topic, number, messages: Vec::new(), durable_until: 0 });
            self.logs.len() - 1
        })
    }

    /// Returns the index of the log that a position belongs to.
    pub fn log_of(&self, position: &Position) -> usize {
        let is_wanted =
            |log: &Log| log.number == position.partition && topic(log.topic) == &*position.topic;
        self.logs.iter().position(is_wanted).expect("a position belongs to an existing partition")
    }

    pub fn position(&self, log: usize, next_offset: usize) -> Position {
        let Log { topic: family, number, .. } = self.logs[log];
        let next_offset = i64::try_from(next_offset).expect("the offset fits in i64");
        Position {
            topic: Arc::from(topic(family)),
            partition: number,
            next_offset,
            known: None,
            last: None,
        }
    }

    /// Assigns every partition to a random member.
    pub fn rebalance(&mut self, rng: &mut Rng) {
        let members: Vec<usize> = self.group.members.iter().copied().collect();
        self.group.generation += 1;
        self.group.owners.clear();
        for _ in &self.logs {
            self.group.owners.push(rng.choice(members.iter().copied()));
        }
    }
}

impl Group {
    pub fn is_owner(&self, member: usize, log: usize) -> bool {
        self.owners.get(log) == Some(&Some(member))
    }
}

fn topic(family: Family) -> &'static str {
    match family {
        Family::Touch => "clicks",
        Family::Activation => "activations",
        Family::Effect => "effects",
    }
}
