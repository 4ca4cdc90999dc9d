//! Which device ids the facts of an app were received with as MD5.

use super::record::FactRecord;
use crate::facts::device_ids::IdKindSet;
use crate::facts::match_keys::TouchClass;

/// One per touch class, one for activations and one for effects.
const GROUPS: usize = TouchClass::COUNT + 2;
const ACTIVATIONS: usize = TouchClass::COUNT;
const EFFECTS: usize = TouchClass::COUNT + 1;

/// The kinds of device id that touches of each class, activations and effects of an app were received with as MD5.
///
/// An app event has up to eight MD5 forms, because networks hash ids in different ways. All but one or two of them only
/// equal ids that were received as MD5, so without these they need not be searched. A kind is never removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivedMd5([IdKindSet; GROUPS]);

impl ReceivedMd5 {
    /// Any id may have been received as MD5.
    pub const ANY: Self = Self([IdKindSet(u16::MAX); GROUPS]);
    pub const ENCODED_BYTES: usize = 2 * GROUPS;

    pub fn by_touches(&self, class: TouchClass) -> IdKindSet {
        self.of_group(class.index())
    }

    pub fn by_activations(&self) -> IdKindSet {
        self.of_group(ACTIVATIONS)
    }

    pub fn by_effects(&self) -> IdKindSet {
        self.of_group(EFFECTS)
    }

    /// Adds the kinds that a fact was received with as MD5. Returns whether one of them is new.
    pub fn add(&mut self, record: &FactRecord, kinds: IdKindSet) -> bool {
        let group = match record {
            FactRecord::Touch(touch) => TouchClass::of(touch).index(),
            FactRecord::Activation(_) => ACTIVATIONS,
            FactRecord::Effect(_) => EFFECTS,
        };
        let Some(known) = self.0.get_mut(group) else { return false };
        let before = std::mem::replace(known, IdKindSet(known.0 | kinds.0));
        before != *known
    }

    /// Returns the kinds of both.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = *self;
        for (kinds, others) in union.0.iter_mut().zip(other.0) {
            kinds.0 |= others.0;
        }
        union
    }

    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        for (bytes, kinds) in bytes.chunks_exact_mut(2).zip(self.0) {
            bytes.copy_from_slice(&kinds.0.to_be_bytes());
        }
        bytes
    }

    /// Returns `None` if the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::ENCODED_BYTES {
            return None;
        }
        let mut new = Self::default();
        for (bytes, kinds) in bytes.chunks_exact(2).zip(&mut new.0) {
            *kinds = IdKindSet(u16::from_be_bytes(bytes.try_into().ok()?));
        }
        Some(new)
    }

    fn of_group(&self, group: usize) -> IdKindSet {
        self.0.get(group).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{Device, Effect, EventTime, Fact, Pid};

    #[test]
    fn kinds_are_kept_by_group_and_survive_encoding() {
        let effect = Effect {
            pid: Pid(1),
            id: "e".into(),
            name: "".into(),
            time: EventTime::default(),
            ids: Vec::new(),
            device: Device::default(),
            app_version: "".into(),
            revenue: "".into(),
            currency: "".into(),
            props: Vec::new(),
        };
        let record = FactRecord::from(Fact::Effect(Box::new(effect)));
        let (mut received, kinds) = (ReceivedMd5::default(), IdKindSet(0b1000));
        assert!(received.add(&record, kinds));
        assert!(!received.add(&record, kinds));
        assert_eq!(received.by_effects(), kinds);
        assert!(received.by_activations().is_empty());
        assert!(TouchClass::all().all(|class| received.by_touches(class).is_empty()));
        assert_eq!(ReceivedMd5::decode(&received.encode()), Some(received));
        assert_eq!(ReceivedMd5::decode(&received.encode()[1..]), None);
        assert_eq!(received.union(&ReceivedMd5::ANY), ReceivedMd5::ANY);
    }
}
