//! Decides which entries of the tables of facts, and of the outbox, a compaction removes.

use attribution::facts::event::{EventTime, Family};
use attribution::facts::match_keys::{BUCKET_MS, ProbabilisticClass};
use attribution::rules::policy::LOOKBACK_MAX_MS;

use crate::expiry::Expiry;
use crate::layout::codec;
use crate::layout::codec::touch::{TouchRef, split_contents};
use crate::layout::key::{self, FactTableKey};
use crate::layout::outbox::{self, OutboxTableKey};

/// True if no decision can need the entry any more. Unreadable entries are kept, so that reads and checks find the
/// damage.
pub fn is_expired(expiry: &Expiry, family: Family, key: &[u8], value: &[u8]) -> bool {
    let Some(fact_key) = key::decode_fact(key) else { return false };
    let pid = fact_key.pid();
    let oldest = |lookback_ms| expiry.oldest(pid, family, lookback_ms);
    match fact_key {
        FactTableKey::FactRecord { .. } if family == Family::Touch => TouchRef::decode(value)
            .is_ok_and(|touch| touch.time < expiry.oldest_record(pid, family, touch.lookback_ms())),
        FactTableKey::FactRecord { .. } => codec::fact::times(family, value)
            .is_ok_and(|(time, lookback_ms)| time < expiry.oldest_record(pid, family, lookback_ms)),
        FactTableKey::Index { time, .. } if time >= oldest(None) => false,
        FactTableKey::Index { time, tag, .. } => match codec::index_value(value) {
            Ok((0, _)) => is_marker_expired(family, time, tag, oldest),
            Ok((_, lookback_ms)) => time < oldest(lookback_ms),
            Err(_) => false,
        },
    }
}

/// The same for the contents of a touch.
pub fn is_touch_expired(expiry: &Expiry, contents: &[u8]) -> bool {
    split_contents(contents).is_ok_and(|(pid, record)| {
        codec::fact::times(Family::Touch, record).is_ok_and(|(time, lookback_ms)| {
            time < expiry.oldest_record(pid, Family::Touch, lookback_ms)
        })
    })
}

/// The same for an entry of the outbox: a record of finished entries that was kept long enough is removed.
pub fn is_callback_expired(key: &[u8], value: &[u8], now: EventTime) -> bool {
    let Some(OutboxTableKey::Record(event)) = outbox::decode(key) else { return false };
    let record = codec::outbox::decode(&event, value);
    record.is_ok_and(|record| record.kept_until().is_some_and(|until| until < now))
}

/// A bucket marker has the time of the start of its day.
fn is_marker_expired(
    family: Family,
    time: EventTime,
    tag: u64,
    oldest: impl Fn(Option<u64>) -> EventTime,
) -> bool {
    let has_lookback =
        family == Family::Touch && ProbabilisticClass::of_tag(tag).class.has_lookback;
    time.plus(BUCKET_MS) < oldest(has_lookback.then_some(LOOKBACK_MAX_MS))
}
