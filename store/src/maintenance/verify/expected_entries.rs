//! The index entries that a fact has to have.

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::record::Home;

use crate::layout::codec;
use crate::layout::key::{self, Key};

/// What the index holds of a fact.
pub struct Entries {
    /// By its ids.
    pub by_id: Vec<Key>,
    /// By its places; only if it came while its app matched by them.
    pub by_place: Vec<Key>,
    /// Of its places; the same.
    pub marks: Vec<Key>,
    /// Of all but the marks.
    pub value: Vec<u8>,
}

pub fn entries(fact: &FactKey, home: &Home) -> Entries {
    let (ids, lookback_ms) = match home {
        Home::Touch(touch) => (DeviceIds::new(&touch.ids), touch.lookback_ms),
        Home::Activation(home) => (DeviceIds::new(&home.fact.ids), None),
        Home::Effect(home) => (DeviceIds::new(&home.fact.ids), None),
    };
    let key = |by: &MatchKey| key::index(*by, fact, home.time());
    let [by_id, all] = [false, true].map(|probabilistic| keys(home, &ids, probabilistic));
    let marks = match home {
        Home::Touch(touch) => match_keys::touch_marks(touch, &ids),
        Home::Activation(home) => match_keys::activation_marks(&home.fact, &ids),
        Home::Effect(_) => Vec::new(),
    };
    let mut value = Vec::with_capacity(9);
    codec::put_index_value(&mut value, fact.id.0, lookback_ms);
    Entries {
        by_place: all.iter().filter(|by| !by_id.contains(by)).map(key).collect(),
        by_id: by_id.iter().map(key).collect(),
        marks: marks.iter().map(|(by, mark)| key::index(*by, &mark.fact, mark.time)).collect(),
        value,
    }
}

fn keys(home: &Home, ids: &DeviceIds, probabilistic: bool) -> Vec<MatchKey> {
    match home {
        Home::Touch(touch) => match_keys::touch_index(touch, ids, probabilistic),
        Home::Activation(home) => match_keys::activation_index(&home.fact, ids, probabilistic),
        Home::Effect(_) => ids.iter().map(match_keys::by_id).collect(),
    }
}

/// The value of every mark.
pub fn mark_value() -> Vec<u8> {
    let mut value = Vec::with_capacity(8);
    codec::put_index_value(&mut value, 0, None);
    value
}
