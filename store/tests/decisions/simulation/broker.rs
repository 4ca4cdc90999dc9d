//! A broker: partitions with messages at their offsets, and one group that reads them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use attribution::facts::event::Family;
use attribution::ledger::Position;
use fastrand::Rng;

use crate::support::traffic::Message;

#[derive(Debug, Default)]
pub struct Broker {
    pub logs: Vec<Log>,
    /// Not produced yet: the family and number of the partition with each.
    pub coming: VecDeque<(Family, i32, Message)>,
    pub group: Group,
}

/// A partition.
#[derive(Debug)]
pub struct Log {
    pub topic: Family,
    pub number: i32,
    pub messages: Vec<Message>,
    /// Everything before this offset was found to be durable.
    pub kept_until: usize,
}

/// Who reads what.
#[derive(Debug, Default)]
pub struct Group {
    /// Grows with every rebalance.
    pub generation: u64,
    pub members: BTreeSet<usize>,
    /// By the place of the log.
    owners: Vec<Option<usize>>,
}

impl Broker {
    /// Appends the next messages. Says whether a partition came with them.
    pub fn produce(&mut self, count: usize) -> bool {
        let before = self.logs.len();
        for _ in 0..count {
            let Some((topic, number, message)) = self.coming.pop_front() else { break };
            let place = self.log(topic, number);
            self.logs[place].messages.push(message);
        }
        self.logs.len() > before
    }

    pub fn log(&mut self, topic: Family, number: i32) -> usize {
        let is_it = |log: &Log| (log.topic, log.number) == (topic, number);
        self.logs.iter().position(is_it).unwrap_or_else(|| {
            self.logs.push(Log { topic, number, messages: Vec::new(), kept_until: 0 });
            self.logs.len() - 1
        })
    }

    /// Where the log of a position is.
    pub fn place(&self, position: &Position) -> usize {
        let is_it =
            |log: &Log| log.number == position.partition && topic(log.topic) == &*position.topic;
        self.logs.iter().position(is_it).expect("positions are of partitions that there are")
    }

    pub fn position(&self, place: usize, next_offset: usize) -> Position {
        let Log { topic: family, number, .. } = self.logs[place];
        let next_offset = i64::try_from(next_offset).expect("a small offset");
        Position {
            topic: Arc::from(topic(family)),
            partition: number,
            next_offset,
            mark: None,
            last: None,
        }
    }

    /// Gives every partition to a member, whatever it had before.
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
    pub fn is_owner(&self, who: usize, place: usize) -> bool {
        self.owners.get(place) == Some(&Some(who))
    }
}

fn topic(family: Family) -> &'static str {
    match family {
        Family::Touch => "clicks",
        Family::Activation => "activations",
        Family::Effect => "effects",
    }
}
