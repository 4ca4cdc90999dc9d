//! Keys: a decoded key encodes to the same bytes.

use attribution::facts::event::Family;
use attribution::facts::keys::{FactKey, MatchKey};

use crate::layout::campaign_index::CreditedActivation;
use crate::layout::hourly_counts::{self, CellKey};
use crate::layout::key::{self, FactTableKey, Key, RowKey};
use crate::layout::summary_counts::SummaryKey;

/// Decodes the input as each kind of key.
pub fn key(input: &[u8]) {
    if let Some(row) = RowKey::decode(input) {
        assert_eq!(row.encode(), input);
        assert_eq!(CreditedActivation::of(&row).row(row.partition), row);
    }
    if let Some(credited) = CreditedActivation::decode(input) {
        assert_eq!(credited.encode(), input);
    }
    if let Some(summary) = SummaryKey::decode(input) {
        assert_eq!(summary.encode(), input, "{summary:?}");
    }
    if let Some((key, value)) = input.split_first_chunk() {
        facts(key, value);
        neighbours(key);
    }
    if let Ok(cell) = CellKey::try_from(input) {
        // An hour that event times can reach contains its first row.
        let first = RowKey::decode(&hourly_counts::first_row(&cell));
        if let Some(first) = first.filter(|first| hourly_counts::cell_key(first) == cell) {
            assert_eq!(hourly_counts::pid(&cell), first.pid);
            assert_eq!(hourly_counts::cell_at(&first.encode()), cell);
        }
    }
    if let Some((value, key)) = input.split_first_chunk::<8>()
        && let Some(position) = key::decode_position(key, value)
    {
        assert_eq!(key::position(&position), key);
        assert_eq!(position.next_offset.to_be_bytes(), *value);
    }
    if let Some(fingerprint) = key::decode_fingerprint(input) {
        assert_eq!(key::fingerprint(fingerprint), input);
    }
}

fn facts(key: &Key, value: &[u8]) {
    match key::decode_fact(key) {
        None => assert!(key::decode_index(Family::Touch, key, 0).is_none()),
        Some(FactTableKey::FactRecord { id, pid, tag }) => {
            let fact = FactKey { family: Family::Touch, id: MatchKey(id), pid, tag };
            assert_eq!(key::record(&fact), *key);
        }
        Some(FactTableKey::Index { pid, time, tag }) => {
            let Ok((id, lookback_ms)) = crate::layout::codec::index_value(value) else { return };
            let entry = key::decode_index(Family::Touch, key, id);
            let fact = FactKey { family: Family::Touch, id: MatchKey(id), pid, tag };
            assert_eq!(entry.map(|entry| (entry.time, entry.fact)), Some((time, fact)));
            let found_by =
                MatchKey(key.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte)));
            assert_eq!(key::index(found_by, &fact, time), *key);
            let mut again = Vec::new();
            crate::layout::codec::put_index_value(&mut again, id, lookback_ms);
            // A lookback beyond the longest one is limited to that when it is encoded.
            assert!(again == value || again.last() < value.last());
        }
    }
}

fn neighbours(key: &Key) {
    let next = key::next(key);
    assert!(next.is_none_or(|next| next > *key && key::previous(&next) == *key));
    assert!(key::previous(key) < *key || *key == Key::default());
}
