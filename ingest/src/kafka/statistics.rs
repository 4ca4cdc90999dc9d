//! What librdkafka's statistics say about connections and partitions.

use std::collections::HashMap;

use serde::Deserialize;

/// A broker is asked something every ten seconds at least: one that has said nothing for so long
/// hangs, though its connection stands.
const SILENT_AFTER_US: i64 = 15_000_000;

/// The parts that are used; offsets below 0 are unknown.
#[derive(Debug, Deserialize)]
pub struct Statistics {
    brokers: HashMap<String, Broker>,
    topics: HashMap<String, Topic>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    state: String,
    /// Microseconds since it was heard last on its connection; below 0, not yet.
    rxidle: i64,
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
    /// The end of what is settled: nothing is read behind a transaction that is not ended.
    ls_offset: i64,
    /// What was fetched and not polled yet, of all partitions.
    fetchq_cnt: i64,
}

impl Statistics {
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// Whether a broker answers.
    pub fn is_connected(&self) -> bool {
        let answers = |idle_us: i64| (0..SILENT_AFTER_US).contains(&idle_us);
        self.brokers.values().any(|broker| broker.state == "UP" && answers(broker.rxidle))
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

    /// One after the last record that there is; `None` while nothing was fetched.
    pub fn high(&self) -> Option<i64> {
        Some(self.hi_offset).filter(|offset| *offset >= 0)
    }

    /// Where a transaction that is not ended yet begins, if all before it was polled.
    pub fn held_at(&self) -> Option<i64> {
        let is_open = (0..self.hi_offset).contains(&self.ls_offset);
        self.polled().filter(|polled| is_open && *polled >= self.ls_offset)
    }

    /// The offset up to which everything was polled; `None` while something fetched was not.
    pub fn polled(&self) -> Option<i64> {
        (self.fetchq_cnt == 0 && self.next_offset >= 0).then_some(self.next_offset)
    }

    /// Whether all that there is was polled. The last offsets of a log may be marks of
    /// transactions, which are fetched and never polled: a position alone does not tell. What an open
    /// transaction holds back is there, and is not polled.
    pub fn is_drained(&self) -> bool {
        self.polled().zip(self.high()).is_some_and(|(polled, high)| polled >= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        next: i64,
        settled: i64,
        high: i64,
        queued: i64,
        expected: (Option<i64>, bool),
    ) -> Partition {
        let partition = Partition {
            next_offset: next,
            lo_offset: -1001,
            hi_offset: high,
            ls_offset: settled,
            fetchq_cnt: queued,
        };
        assert_eq!((partition.high(), partition.is_drained()), expected);
        assert_eq!(partition.low(), 0);
        partition
    }

    #[test]
    fn drained_is_fetched_and_polled() {
        check(12, 12, 12, 0, (Some(12), true));
        check(12, 12, 12, 3, (Some(12), false));
        check(9, 10, 10, 0, (Some(10), false));
        check(10, -1, 10, 0, (Some(10), true));
        check(-1001, -1001, -1001, 0, (None, false));
        check(0, 0, 0, 0, (Some(0), true));
    }

    #[test]
    fn what_an_open_transaction_holds_back_is_not_read() {
        let held_at = |next, settled, high| {
            check(next, settled, high, 0, (Some(high), next >= high)).held_at()
        };
        assert_eq!(held_at(10, 10, 12), Some(10));
        assert_eq!(held_at(9, 10, 12), None, "there is more to read before it");
        assert_eq!(held_at(12, 12, 12), None);
    }

    #[test]
    fn the_used_parts_are_found() {
        let json =
            br#"{"name":"x","brokers":{"b:1/1":{"state":"UP","rxidle":9,"nodeid":1}},"topics":{
            "t":{"topic":"t","partitions":{"0":{"next_offset":3,"lo_offset":1,"hi_offset":4,
            "ls_offset":4,"fetchq_cnt":1,"fetch_state":"active"}}}}}"#;
        let statistics = Statistics::parse(json).expect("it is what librdkafka writes");
        assert!(statistics.is_connected());
        let partitions: Vec<_> = statistics.partitions().collect();
        assert!(matches!(partitions[..], [("t", 0, Partition { lo_offset: 1, .. })]));
    }

    #[track_caller]
    fn check_connected(brokers: &[(&str, i64)], expected: bool) {
        let broker = |(name, (state, rxidle)): (usize, &(&str, i64))| {
            (name.to_string(), Broker { state: (*state).to_owned(), rxidle: *rxidle })
        };
        let brokers = brokers.iter().enumerate().map(broker).collect();
        let statistics = Statistics { brokers, topics: HashMap::new() };
        assert_eq!(statistics.is_connected(), expected);
    }

    #[test]
    fn a_broker_that_was_heard_of_late_answers() {
        check_connected(&[], false);
        check_connected(&[("UP", 0)], true);
        check_connected(&[("UP", -1)], false);
        check_connected(&[("UP", 14_999_999)], true);
        check_connected(&[("UP", 15_000_000)], false);
        check_connected(&[("CONNECT", 0)], false);
        check_connected(&[("UP", 60_000_000), ("UP", 5), ("DOWN", -1)], true);
    }
}
