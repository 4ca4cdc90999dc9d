//! Transactions that are not ended: what came behind one is not read until it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::kafka::retry::Throttle;
use crate::kafka::topics::TopicKind;

/// A producer that ends its transactions does so sooner.
const LONG: Duration = Duration::from_secs(60);

/// Where partitions are held back, and since when.
#[derive(Debug, Default)]
pub struct OpenTransactions {
    held: BTreeMap<(TopicKind, i32), (i64, Instant)>,
    told: Throttle,
}

impl OpenTransactions {
    /// A partition is read up to the transaction that begins there, or is held back by none.
    pub fn note(&mut self, (topic, name): (TopicKind, &str), partition: i32, at: Option<i64>) {
        let Some(long) = self.held_for((topic, partition), at, Instant::now()) else { return };
        self.told.warn(|| {
            tracing::warn!(
                topic = name,
                partition,
                offset = at,
                seconds = long.as_secs(),
                "a transaction is not ended, and nothing behind it can be read: its producer has to \
                 commit or abort it; of one that is gone, kafka-transactions.sh find-hanging and abort"
            );
        });
    }

    /// For how long it has been held at one place, where that is long.
    fn held_for(
        &mut self,
        place: (TopicKind, i32),
        at: Option<i64>,
        now: Instant,
    ) -> Option<Duration> {
        let Some(at) = at else {
            self.held.remove(&place);
            return None;
        };
        let held = self.held.entry(place).or_insert((at, now));
        if held.0 != at {
            *held = (at, now);
        }
        Some(now.duration_since(held.1)).filter(|long| *long >= LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transaction_that_stays_open_is_told_and_many_short_ones_are_not() {
        let mut open = OpenTransactions::default();
        let start = Instant::now();
        let mut held = |at, second| {
            let now = start + Duration::from_secs(second);
            open.held_for((TopicKind::Clicks, 0), at, now).map(|long| long.as_secs())
        };
        assert_eq!(held(Some(5), 0), None);
        assert_eq!(held(Some(5), 59), None);
        assert_eq!(held(Some(7), 60), None, "the next one");
        assert_eq!(held(Some(7), 120), Some(60));
        assert_eq!(held(None, 121), None);
        assert_eq!(held(Some(7), 122), None);
    }
}
