//! Warns of transactions that stay open: a partition is not read beyond the start of a transaction until that is
//! committed or aborted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::kafka::retry::Throttle;
use crate::kafka::topics::TopicKind;

/// A healthy producer ends its transactions sooner.
const WARN_AFTER: Duration = Duration::from_secs(60);

/// The open transactions that block partitions.
#[derive(Debug, Default)]
pub struct OpenTransactions {
    /// First offset of the transaction, and since when it blocks.
    blocking: BTreeMap<(TopicKind, i32), (i64, Instant)>,
    warnings: Throttle,
}

impl OpenTransactions {
    /// Records the offset at which an open transaction blocks a partition; `None` if none does.
    pub fn observe(&mut self, topic: TopicKind, name: &str, partition: i32, at: Option<i64>) {
        let Some(duration) = self.time_blocked(topic, partition, at, Instant::now()) else {
            return;
        };
        self.warnings.warn(|| {
            tracing::warn!(
                topic = name,
                partition,
                offset = at,
                seconds = duration.as_secs(),
                "an open transaction blocks the partition: its producer must commit or abort it; if the \
                 producer is gone, use kafka-transactions.sh find-hanging and abort"
            );
        });
    }

    /// Returns how long the same transaction has blocked a partition; `None` if for less than [`WARN_AFTER`].
    fn time_blocked(
        &mut self,
        topic: TopicKind,
        partition: i32,
        at: Option<i64>,
        now: Instant,
    ) -> Option<Duration> {
        let Some(at) = at else {
            self.blocking.remove(&(topic, partition));
            return None;
        };
        let (offset, since) = self.blocking.entry((topic, partition)).or_insert((at, now));
        if *offset != at {
            (*offset, *since) = (at, now);
        }
        Some(now.duration_since(*since)).filter(|duration| *duration >= WARN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_stays_open_is_reported_and_short_ones_are_not() {
        let mut open = OpenTransactions::default();
        let start = Instant::now();
        let mut blocked = |at, second| {
            let now = start + Duration::from_secs(second);
            open.time_blocked(TopicKind::Clicks, 0, at, now).map(|duration| duration.as_secs())
        };
        assert_eq!(blocked(Some(5), 0), None);
        assert_eq!(blocked(Some(5), 59), None);
        assert_eq!(blocked(Some(7), 60), None, "the next transaction");
        assert_eq!(blocked(Some(7), 120), Some(60));
        assert_eq!(blocked(None, 121), None);
        assert_eq!(blocked(Some(7), 122), None);
    }
}
