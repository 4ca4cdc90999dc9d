//! Normalised identifiers (section 1 of the contract): the ids of a fact, and in `normalise` each received value.
//!
//! A raw id of a kind whose touches have MD5 forms is represented by its MD5 values only. Equal raw values have equal
//! MD5 values, so one comparison and one index entry serve both forms. Networks hash ids in different ways. The many
//! forms are derived from activations and effects, which are few; a touch has one or two.

mod normalise;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use super::event::{Pairs, TextPairs};
use super::placeholders::is_uuid;
pub use normalise::{
    DeviceId, Form, IdKind, IdValue, click_id, count, display, event_id, hex, hex_digits, ignored,
    ignored_event_id, usable,
};
use normalise::{FewIds, further_forms, md5_form, push_forms, raw_form, values};

/// The normalised device ids of one fact.
#[derive(Debug, Clone, Default)]
pub struct DeviceIds {
    /// Sorted.
    ids: FewIds,
    /// The raw ids of an activation or effect that have further forms, as received.
    raw: Vec<(IdKind, Box<str>)>,
    /// Further MD5 forms of these, sorted. Facts with raw ids that have one of them also have an id in `ids` in common,
    /// so only ids that were received as MD5 are found by them. Derived when first needed, because few facts have such
    /// ids.
    further: OnceLock<Vec<DeviceId>>,
    /// The kinds that were received as MD5, or as text outside ASCII, whose upper and lower case do not correspond.
    /// Only these can equal further forms of other facts.
    received_md5: IdKindSet,
}

/// The fact that an id belongs to; it determines the MD5 forms of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Touch,
    /// An activation or an effect.
    AppEvent,
}

impl DeviceIds {
    /// Normalises the received ids of a touch.
    pub fn of_touch<'a>(received: impl Into<TextPairs<'a>>) -> Self {
        Self::new(received.into(), Owner::Touch)
    }

    /// Normalises the received ids of an activation or an effect.
    pub fn of_app_event(received: &Pairs) -> Self {
        Self::new(received.into(), Owner::AppEvent)
    }

    /// Skips unknown kinds and values that identify nobody.
    fn new(received: TextPairs<'_>, owner: Owner) -> Self {
        let mut new = Self::default();
        for (name, received) in received {
            let Some((kind, form)) = IdKind::parse(name) else { continue };
            for value in values(kind, received) {
                match form {
                    Form::Raw => {
                        if let Ok(raw) = raw_form(kind, value) {
                            push_forms(&mut new.ids, kind, &raw);
                            if !value.is_ascii() {
                                new.received_md5.0 |= kind.md5_form().0;
                            }
                            if owner == Owner::AppEvent {
                                new.add_further_forms(kind, value.trim(), &raw);
                            }
                        }
                    }
                    Form::Md5 => {
                        if let Some(id) = md5_form(kind, value) {
                            new.received_md5.0 |= id.form().0;
                            new.ids.push(id);
                        }
                    }
                }
            }
        }
        new.ids.sort_unstable();
        new.ids.dedup();
        new
    }

    /// Adds the MD5 forms that an id has only because networks hash it in different ways.
    fn add_further_forms(&mut self, kind: IdKind, received: &str, raw: &str) {
        // Equal texts in ASCII have equal raw forms, except that a CAID loses its version, that an IDFV is compared as
        // received, and that a UUID in place of an IMEI or `android_id` keeps its dashes.
        let have_equal_raw_forms = received.is_ascii()
            && match kind {
                IdKind::Caid | IdKind::Idfv => false,
                IdKind::Imei | IdKind::AndroidId => !is_uuid(received),
                IdKind::Oaid | IdKind::Gaid | IdKind::Idfa | IdKind::Mac => true,
            };
        if have_equal_raw_forms {
            self.raw.push((kind, received.into()));
        } else {
            self.ids.extend(further_forms(kind, received, raw));
        }
    }

    fn further(&self) -> &[DeviceId] {
        self.further.get_or_init(|| {
            let mut further = Vec::with_capacity(6 * self.raw.len());
            for (kind, received) in &self.raw {
                if let Ok(raw) = raw_form(*kind, received) {
                    further.extend(further_forms(*kind, received, &raw));
                }
            }
            further.sort_unstable();
            further.dedup();
            further.retain(|id| self.ids.binary_search(id).is_err());
            further
        })
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeviceId> {
        self.ids.iter().chain(self.further())
    }

    /// Returns the ids by which other facts are found, if these facts were received with MD5 values of the given kinds
    /// only.
    pub fn searched(&self, received_md5: IdKindSet) -> impl Iterator<Item = &DeviceId> {
        let further = if received_md5.is_empty() { &[] } else { self.further() };
        let further = further.iter().filter(move |id| received_md5.overlaps(id.form()));
        self.ids.iter().chain(further)
    }

    /// Returns the kinds that can equal further forms of other facts: those that were received as MD5.
    pub fn received_md5(&self) -> IdKindSet {
        self.received_md5
    }

    pub fn contains(&self, id: &DeviceId) -> bool {
        self.position(id).is_some()
    }

    /// Returns the index of the id in [`DeviceIds::iter`].
    pub fn position(&self, id: &DeviceId) -> Option<usize> {
        let position = self.ids.binary_search(id);
        let further = || Some(self.ids.len() + self.further().binary_search(id).ok()?);
        position.ok().or_else(further)
    }

    /// Returns the best-ranked kind for which both contain an equal value.
    pub fn shared(&self, other: &Self) -> Option<IdKind> {
        self.equal_ids(other).map(|id| id.kind).min()
    }

    /// Checks whether, for some kind, both contain a value of the same form but no equal value.
    pub fn contradicts(&self, other: &Self) -> bool {
        let kinds = other.kinds();
        let is_equal = |kind| self.equal_ids(other).any(|id| id.kind == kind);
        self.ids.iter().any(|id| kinds.overlaps(id.form()) && !is_equal(id.kind))
    }

    /// Returns ids that both contain: of each kind that has any, at least one.
    fn equal_ids<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a DeviceId> {
        let is_in = |ids: &'a [DeviceId]| move |id: &&DeviceId| ids.binary_search(id).is_ok();
        let equal = self.ids.iter().filter(is_in(&other.ids));
        let of_self = (!self.received_md5.is_empty()).then(|| {
            let received = |id: &&DeviceId| self.received_md5.overlaps(id.form());
            self.ids.iter().filter(received).filter(is_in(other.further()))
        });
        let of_other = (!other.received_md5.is_empty()).then(|| {
            let received = |id: &&DeviceId| other.received_md5.overlaps(id.form());
            self.further().iter().filter(received).filter(is_in(&other.ids))
        });
        equal.chain(of_self.into_iter().flatten()).chain(of_other.into_iter().flatten())
    }

    /// Returns the kinds and forms that the ids have.
    pub fn kinds(&self) -> IdKindSet {
        self.ids.iter().fold(IdKindSet::default(), |kinds, id| IdKindSet(kinds.0 | id.form().0))
    }
}

impl PartialEq for DeviceIds {
    fn eq(&self, other: &Self) -> bool {
        (&self.ids, &self.raw, self.received_md5) == (&other.ids, &other.raw, other.received_md5)
    }
}

impl Eq for DeviceIds {}

/// A set of id kinds, each in raw or MD5 form. Ids whose sets do not overlap can neither match nor contradict each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct IdKindSet(pub u16);

impl IdKindSet {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl IdKind {
    fn md5_form(self) -> IdKindSet {
        IdKindSet(1 << (2 * self as u16 + 1))
    }
}

impl DeviceId {
    fn form(&self) -> IdKindSet {
        let is_md5 = matches!(self.value, IdValue::Md5(_));
        IdKindSet(1 << (2 * self.kind as u16 + u16::from(is_md5)))
    }
}

/// Parses a setting such as `oaid:1fe9…`; `None` if it is not an id that an event can have.
pub fn parse_setting(text: &str) -> Option<DeviceIds> {
    let (name, value) = text.split_once(':')?;
    let ids = DeviceIds::of_app_event(&vec![(name.trim().into(), value.into())]);
    (!ids.is_empty()).then_some(ids)
}
