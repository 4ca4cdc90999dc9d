//! The index entries that a fact must have.

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::record::FactRecord;

use crate::layout::codec;
use crate::layout::key::{self, Key};

/// The expected index entries of a fact.
pub struct Entries {
    /// Keys by device and click ids.
    pub by_id: Vec<Key>,
    /// Probabilistic keys. They exist only if the fact was recorded while probabilistic matching was on for its app.
    pub probabilistic: Vec<Key>,
    /// Keys of bucket markers. They exist under the same condition.
    pub markers: Vec<Key>,
    /// The value of all entries except markers.
    pub value: Vec<u8>,
}

pub fn entries(fact: &FactKey, record: &FactRecord) -> Entries {
    let ids = DeviceIds::new(record.ids());
    let key = |by: &MatchKey| key::index(*by, fact, record.time());
    let [by_id, all] = [false, true].map(|probabilistic| keys(record, &ids, probabilistic));
    let markers = match record {
        FactRecord::Touch(touch) => match_keys::touch_bucket_markers(touch, &ids),
        FactRecord::Activation(record) => match_keys::activation_bucket_markers(&record.fact, &ids),
        FactRecord::Effect(_) => Vec::new(),
    };
    let mut value = Vec::with_capacity(9);
    codec::put_index_value(&mut value, fact.id.0, record.lookback_ms());
    Entries {
        probabilistic: all.iter().filter(|by| !by_id.contains(by)).map(key).collect(),
        by_id: by_id.iter().map(key).collect(),
        markers: markers
            .iter()
            .map(|(by, marker)| key::index(*by, &marker.fact, marker.time))
            .collect(),
        value,
    }
}

fn keys(record: &FactRecord, ids: &DeviceIds, probabilistic: bool) -> Vec<MatchKey> {
    match record {
        FactRecord::Touch(touch) => match_keys::touch_index(touch, ids, probabilistic),
        FactRecord::Activation(record) => {
            match_keys::activation_index(&record.fact, ids, probabilistic)
        }
        FactRecord::Effect(_) => ids.iter().map(match_keys::by_id).collect(),
    }
}

/// The value of every bucket marker.
pub fn marker_value() -> Vec<u8> {
    let mut value = Vec::with_capacity(8);
    codec::put_index_value(&mut value, 0, None);
    value
}
