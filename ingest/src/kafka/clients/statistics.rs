//! The parts of librdkafka's statistics about connections and partitions.

use std::collections::HashMap;

use serde::Deserialize;

/// A connected broker that has sent nothing for this long hangs: librdkafka sends it a request at least every ten
/// seconds.
const SILENT_AFTER_US: i64 = 15_000_000;

/// The fields that are used. Negative offsets are unknown.
#[derive(Debug, Deserialize)]
pub struct Statistics {
    brokers: HashMap<String, Broker>,
    topics: HashMap<String, Topic>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    state: String,
    /// Microseconds since the last bytes were received on its connection; negative if none were yet.
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
    /// The last stable offset: the first one of the oldest open transaction, from which on nothing is read.
    ls_offset: i64,
    /// Number of records that are fetched but not polled yet.
    fetchq_cnt: i64,
}

impl Statistics {
    /// Returns true if any broker answers.
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

    /// Returns the offset after the last record; `None` until something was fetched.
    pub fn high(&self) -> Option<i64> {
        Some(self.hi_offset).filter(|offset| *offset >= 0)
    }

    /// Returns the first offset of an open transaction if everything before it was polled.
    pub fn blocked_at(&self) -> Option<i64> {
        let is_open = (0..self.hi_offset).contains(&self.ls_offset);
        self.polled().filter(|polled| is_open && *polled >= self.ls_offset)
    }

    /// Returns the offset up to which everything was polled; `None` while fetched records wait to be polled.
    pub fn polled(&self) -> Option<i64> {
        (self.fetchq_cnt == 0 && self.next_offset >= 0).then_some(self.next_offset)
    }

    /// Returns true if every record was polled. A position does not show this, because the last offsets of a log may be
    /// transaction markers, which are fetched but never polled. Records of an open transaction count as not polled.
    pub fn is_drained(&self) -> bool {
        self.polled().zip(self.high()).is_some_and(|(polled, high)| polled >= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(next_offset: i64, ls_offset: i64, hi_offset: i64, fetchq_cnt: i64) -> Partition {
        Partition { next_offset, lo_offset: -1001, hi_offset, ls_offset, fetchq_cnt }
    }

    #[test]
    fn a_partition_is_drained_once_all_records_are_polled() {
        assert!(partition(12, 12, 12, 0).is_drained());
        assert!(!partition(12, 12, 12, 3).is_drained());
        assert!(!partition(9, 10, 10, 0).is_drained());
        assert!(partition(10, -1, 10, 0).is_drained());
        assert!(partition(0, 0, 0, 0).is_drained());
        let unknown = partition(-1001, -1001, -1001, 0);
        assert_eq!((unknown.low(), unknown.high(), unknown.is_drained()), (0, None, false));
    }

    #[test]
    fn an_open_transaction_blocks_a_partition() {
        let blocked_at = |next, stable, high| partition(next, stable, high, 0).blocked_at();
        assert_eq!(blocked_at(10, 10, 12), Some(10));
        assert_eq!(blocked_at(9, 10, 12), None, "a record before it is not polled");
        assert_eq!(blocked_at(12, 12, 12), None);
    }

    #[test]
    fn the_used_fields_are_parsed() {
        let json =
            br#"{"name":"x","brokers":{"b:1/1":{"state":"UP","rxidle":9,"nodeid":1}},"topics":{
            "t":{"topic":"t","partitions":{"0":{"next_offset":3,"lo_offset":1,"hi_offset":4,
            "ls_offset":4,"fetchq_cnt":1,"fetch_state":"active"}}}}}"#;
        let statistics: Statistics =
            serde_json::from_slice(json).expect("the statistics are valid");
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
    fn a_broker_that_sent_bytes_recently_is_connected() {
        check_connected(&[], false);
        check_connected(&[("UP", 0)], true);
        check_connected(&[("UP", -1)], false);
        check_connected(&[("UP", 14_999_999)], true);
        check_connected(&[("UP", 15_000_000)], false);
        check_connected(&[("CONNECT", 0)], false);
        check_connected(&[("UP", 60_000_000), ("UP", 5), ("DOWN", -1)], true);
    }
}
