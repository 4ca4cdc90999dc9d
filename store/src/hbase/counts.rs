//! The tallies of callbacks in HBase, which one process counts for all, because each count reads the whole outbox.
//!
//! The row `callback_counts` of the table `meta` has the last count, and the lease of the process that is counting. It
//! is changed by compare-and-set. The process renews its lease from page to page; if it ends, another one counts.

use attribution::facts::event::EventTime;
use attribution::outbox::record::{Counts, EndpointId};

use super::cluster::Cluster;
use super::outbox::SharedOutbox;
use super::schema::meta;
use crate::StoreError;
use crate::clock::now;
use crate::layout::codec::outbox::{put_tally, tally};
use crate::layout::codec::{Input, put_text, put_time, put_varint};

const VERSION: u8 = 1;

/// How often the callbacks are counted, and for how long a process may count without a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountTimes {
    pub interval_ms: u64,
    pub lease_ms: u64,
}

/// The value of the row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountsRow {
    pub lease: Option<CountLease>,
    pub last: Option<LastCount>,
}

/// The process that is counting, by a random number, and when another one may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLease {
    pub owner: u64,
    pub until: EventTime,
}

/// A count, and when it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCount {
    pub at: EventTime,
    pub counts: Counts,
}

impl CountsRow {
    /// The value: version u8 · owner u64 and end of the lease · end of the count · number of endpoints, each with its
    /// name and tally. A time is 0 if there is none.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.lease.map_or(0, |lease| lease.owner).to_be_bytes());
        put_time(&mut out, self.lease.map(|lease| lease.until));
        put_time(&mut out, self.last.as_ref().map(|last| last.at));
        let counts = self.last.iter().flat_map(|last| &last.counts);
        put_varint(&mut out, self.last.as_ref().map_or(0, |last| last.counts.len()) as u64);
        for (endpoint, tally) in counts {
            put_text(&mut out, endpoint.as_str());
            put_tally(&mut out, tally);
        }
        out
    }

    fn decode(value: &[u8]) -> Result<Self, StoreError> {
        let mut input = Input::new(value);
        if input.byte()? != VERSION {
            return Err(StoreError::corrupt("the counts of callbacks"));
        }
        let (owner, until, at) = (input.u64()?, input.time()?, input.time()?);
        let mut counts = Counts::new();
        for _ in 0..input.varint()? {
            counts.insert(EndpointId::new(input.text()?), tally(&mut input)?);
        }
        input.end()?;
        let lease = until.map(|until| CountLease { owner, until });
        Ok(Self { lease, last: at.map(|at| LastCount { at, counts }) })
    }

    /// Checks whether a process must count now: the last count is old, and no other process is counting. A time that is
    /// too far ahead was written by a wrong clock, and is ignored.
    fn is_due(&self, owner: u64, now: EventTime, times: CountTimes) -> bool {
        let is_near = |time: EventTime, ms: u64| now.minus(ms) < time && time < now.plus(ms);
        let is_recent = self.last.as_ref().is_some_and(|last| is_near(last.at, times.interval_ms));
        let is_leased = self.lease.is_some_and(|CountLease { owner: other, until }| {
            other != owner && now < until && until <= now.plus(2 * times.lease_ms)
        });
        !is_recent && !is_leased
    }

    /// Returns the row while a process counts.
    fn leased(&self, owner: u64, now: EventTime, times: CountTimes) -> Self {
        let lease = CountLease { owner, until: now.plus(times.lease_ms) };
        Self { lease: Some(lease), last: self.last.clone() }
    }

    fn into_counts(self) -> Option<Counts> {
        self.last.map(|last| last.counts)
    }
}

/// The row as it is stored, by what this process knows.
struct StoredCounts<'c> {
    cluster: &'c Cluster,
    value: Option<Vec<u8>>,
    row: CountsRow,
}

impl<'c> StoredCounts<'c> {
    fn read(cluster: &'c Cluster) -> Result<Self, StoreError> {
        let value = meta::callback_counts(cluster)?;
        // What cannot be read is counted again.
        let row = value.as_deref().and_then(|value| CountsRow::decode(value).ok());
        Ok(Self { cluster, value, row: row.unwrap_or_default() })
    }

    /// Replaces the row. Returns false if another process has changed it.
    fn replace(&mut self, row: CountsRow) -> Result<bool, StoreError> {
        let value = row.encode();
        let is_put = meta::put_callback_counts(self.cluster, self.value.clone(), value.clone())?
            // An attempt whose response was lost may have put it.
            || meta::callback_counts(self.cluster)?.as_ref() == Some(&value);
        if is_put {
            (self.value, self.row) = (Some(value), row);
        }
        Ok(is_put)
    }

    /// Renews the lease once half of it has passed. Returns false if another process has taken over.
    fn keep(&mut self, owner: u64, times: CountTimes) -> Result<bool, StoreError> {
        let now = now();
        let left_ms = self.row.lease.and_then(|lease| lease.until.since(now)).unwrap_or(0);
        if left_ms >= times.lease_ms / 2 {
            return Ok(true);
        }
        let renewed = self.row.leased(owner, now, times);
        self.replace(renewed)
    }
}

impl SharedOutbox<Cluster> {
    /// Returns the last count of all callbacks; `None` before the first one. Of the processes that call this, one
    /// counts at each interval. `owner` is a random number of this process.
    pub fn counts_of_all(
        &mut self,
        owner: u64,
        times: CountTimes,
    ) -> Result<Option<Counts>, StoreError> {
        let cluster = self.cells.clone();
        let mut stored = StoredCounts::read(&cluster)?;
        let now = now();
        if !stored.row.is_due(owner, now, times) {
            return Ok(stored.row.into_counts());
        }
        let leased = stored.row.leased(owner, now, times);
        if stored.replace(leased)?
            && let Some(counts) = self.count(|| stored.keep(owner, times))?
        {
            let last = LastCount { at: self::now(), counts };
            stored.replace(CountsRow { lease: None, last: Some(last) })?;
        }
        // If another process has taken over, its count is the one of all.
        self.last_counts()
    }

    /// Returns the last count of any process; `None` before the first one.
    pub fn last_counts(&self) -> Result<Option<Counts>, StoreError> {
        Ok(StoredCounts::read(&self.cells)?.row.into_counts())
    }
}

#[cfg(test)]
mod tests {
    use attribution::outbox::record::Tally;

    use super::*;

    const TIMES: CountTimes = CountTimes { interval_ms: 300, lease_ms: 60 };
    const OWN: u64 = 7;

    fn at(ms: u64) -> EventTime {
        EventTime::default().plus(ms)
    }

    fn row(lease: Option<(u64, u64)>, last: Option<u64>) -> CountsRow {
        let counts = || {
            Counts::from([(EndpointId::new("a"), Tally { made: 3, sent: 2, ..Tally::default() })])
        };
        CountsRow {
            lease: lease.map(|(owner, until)| CountLease { owner, until: at(until) }),
            last: last.map(|ms| LastCount { at: at(ms), counts: counts() }),
        }
    }

    #[track_caller]
    fn check_due(lease: Option<(u64, u64)>, last: Option<u64>, expected: bool) {
        assert_eq!(row(lease, last).is_due(OWN, at(10_000), TIMES), expected);
    }

    #[test]
    fn callbacks_are_counted_once_in_an_interval() {
        check_due(None, None, true);
        check_due(None, Some(10_000), false);
        check_due(None, Some(9_701), false);
        check_due(None, Some(9_700), true);
        check_due(None, Some(10_299), false);
        // A clock that was ahead has written this time.
        check_due(None, Some(10_300), true);
    }

    #[test]
    fn another_process_takes_over_after_the_lease() {
        check_due(Some((8, 10_001)), None, false);
        check_due(Some((8, 10_060)), Some(1), false);
        check_due(Some((8, 10_000)), Some(1), true);
        check_due(Some((OWN, 10_060)), Some(1), true);
        check_due(Some((8, 10_121)), Some(1), true);
        let leased = row(Some((8, 9_000)), Some(1)).leased(OWN, at(10_000), TIMES);
        assert_eq!(leased, row(Some((OWN, 10_060)), Some(1)), "the last count is kept");
    }

    #[test]
    fn a_row_survives_its_encoding() {
        for row in [row(None, None), row(Some((8, 5)), None), row(Some((u64::MAX, 5)), Some(9))] {
            let value = row.encode();
            assert_eq!(CountsRow::decode(&value).unwrap(), row);
            for length in 0..value.len() {
                assert!(CountsRow::decode(&value[..length]).is_err(), "{length} of {value:?}");
            }
        }
        let value = row(None, Some(9)).encode();
        let of_another_version = [&[VERSION + 1][..], &value[1..]].concat();
        let longer = [&value[..], &[0]].concat();
        for wrong in [of_another_version, longer] {
            assert!(CountsRow::decode(&wrong).is_err(), "{wrong:?}");
        }
    }
}
