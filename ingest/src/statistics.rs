//! What librdkafka's statistics say about connections and partitions.

use std::collections::HashMap;

use serde::Deserialize;

/// The parts that are used; offsets below 0 are unknown.
#[derive(Debug, Deserialize)]
pub struct Statistics {
    brokers: HashMap<String, Broker>,
    topics: HashMap<String, Topic>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    state: String,
}

#[derive(Debug, Deserialize)]
struct Topic {
    partitions: HashMap<i32, Partition>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Partition {
    /// The next offset to fetch.
    next_offset: i64,
    lo_offset: i64,
    hi_offset: i64,
    /// The end of what is settled, which transactions in progress hold back.
    ls_offset: i64,
    /// What was fetched and not polled yet, of all partitions.
    fetchq_cnt: i64,
}

impl Statistics {
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    pub fn is_connected(&self) -> bool {
        self.brokers.values().any(|broker| broker.state == "UP")
    }

    pub fn partitions(&self) -> impl Iterator<Item = (&str, i32, Partition)> {
        self.topics.iter().flat_map(|(name, topic)| {
            topic.partitions.iter().map(|(number, partition)| (name.as_str(), *number, *partition))
        })
    }
}

impl Partition {
    pub fn low(&self) -> i64 {
        self.lo_offset.max(0)
    }

    /// One after the last record that can be read; `None` while nothing was fetched.
    pub fn high(&self) -> Option<i64> {
        [self.ls_offset, self.hi_offset].into_iter().find(|offset| *offset >= 0)
    }

    /// The offset up to which everything was polled; `None` while something fetched was not.
    pub fn polled(&self) -> Option<i64> {
        (self.fetchq_cnt == 0 && self.next_offset >= 0).then_some(self.next_offset)
    }

    /// Whether all that can be read was polled. The last offsets of a log may be marks of
    /// transactions, which are fetched and never polled: a position alone does not tell.
    pub fn is_drained(&self) -> bool {
        self.polled().zip(self.high()).is_some_and(|(polled, high)| polled >= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(next: i64, settled: i64, high: i64, queued: i64, expected: (Option<i64>, bool)) {
        let partition = Partition {
            next_offset: next,
            lo_offset: -1001,
            hi_offset: high,
            ls_offset: settled,
            fetchq_cnt: queued,
        };
        assert_eq!((partition.high(), partition.is_drained()), expected);
        assert_eq!(partition.low(), 0);
    }

    #[test]
    fn drained_is_fetched_and_polled() {
        check(10, 10, 12, 0, (Some(10), true));
        check(10, 10, 12, 3, (Some(10), false));
        check(9, 10, 10, 0, (Some(10), false));
        check(10, -1, 10, 0, (Some(10), true));
        check(-1001, -1001, -1001, 0, (None, false));
        check(0, 0, 0, 0, (Some(0), true));
    }

    #[test]
    fn the_used_parts_are_found() {
        let json = br#"{"name":"x","brokers":{"b:1/1":{"state":"UP","nodeid":1}},"topics":{
            "t":{"topic":"t","partitions":{"0":{"next_offset":3,"lo_offset":1,"hi_offset":4,
            "ls_offset":4,"fetchq_cnt":1,"fetch_state":"active"}}}}}"#;
        let statistics = Statistics::parse(json).expect("it is what librdkafka writes");
        assert!(statistics.is_connected());
        let partitions: Vec<_> = statistics.partitions().collect();
        assert!(matches!(partitions[..], [("t", 0, Partition { lo_offset: 1, .. })]));
    }
}
