//! Normalised identifiers (section 1 of the contract).
//!
//! A raw id of a kind whose touches have MD5 forms is represented by its MD5 values only. Equal raw values have equal
//! MD5 values, so one comparison and one index entry serve both forms. Networks hash ids in different ways. The many
//! forms are derived from activations and effects, which are few; a touch has one or two.

use std::borrow::Cow;
use std::sync::OnceLock;

use md5::{Digest, Md5};

use super::event::Pairs;
use super::placeholders::{
    self, IgnoredReason, SAMPLE_ANDROID_ID, SHARED_ANDROID_IDS, SHARED_IMEIS, SHARED_MACS, is_uuid,
};

crate::named! {
    /// The kinds of device id, best match first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum IdKind {
        Oaid = "oaid",
        Gaid = "gaid",
        Idfa = "idfa",
        Caid = "caid",
        Idfv = "idfv",
        Imei = "imei",
        AndroidId = "android_id",
        Mac = "mac",
    }
}

impl IdKind {
    fn md5_form(self) -> IdKindSet {
        IdKindSet(1 << (2 * self as u16 + 1))
    }

    /// Parses a kind and its form: the suffix `_md5` marks the MD5 form.
    pub fn parse(name: &str) -> Option<(Self, Form)> {
        let (name, form) = match name.strip_suffix("_md5") {
            Some(name) => (name, Form::Md5),
            None => (name, Form::Raw),
        };
        Some((Self::from_name(name)?, form))
    }

    /// Returns the name of the MD5 form.
    pub fn md5_name(self) -> &'static str {
        match self {
            Self::Oaid => "oaid_md5",
            Self::Gaid => "gaid_md5",
            Self::Idfa => "idfa_md5",
            Self::Caid => "caid_md5",
            Self::Idfv => "idfv_md5",
            Self::Imei => "imei_md5",
            Self::AndroidId => "android_id_md5",
            Self::Mac => "mac_md5",
        }
    }
}

/// The form of a received id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Raw,
    Md5,
}

/// One normalised id by which a touch and an activation can match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub kind: IdKind,
    pub value: IdValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdValue {
    Raw(Box<str>),
    Md5([u8; 16]),
}

/// The normalised device ids of one fact.
#[derive(Debug, Clone, Default)]
pub struct DeviceIds {
    /// Sorted.
    ids: Vec<DeviceId>,
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
    pub fn of_touch(received: &Pairs) -> Self {
        Self::new(received, Owner::Touch)
    }

    /// Normalises the received ids of an activation or an effect.
    pub fn of_app_event(received: &Pairs) -> Self {
        Self::new(received, Owner::AppEvent)
    }

    /// Skips unknown kinds and values that identify nobody.
    fn new(received: &Pairs, owner: Owner) -> Self {
        let mut new = Self { ids: Vec::with_capacity(2 * received.len()), ..Self::default() };
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

/// Returns the value that a row shows for a kind: the first normalised raw id, or the first MD5 if only MD5 values were
/// received.
pub fn display(received: &Pairs, kind: IdKind) -> Box<str> {
    let of_form = |form: Form| {
        let has_form = move |name: &str| IdKind::parse(name) == Some((kind, form));
        let entries = received.iter().filter(move |(name, _)| has_form(name));
        entries.flat_map(move |(_, received)| values(kind, received))
    };
    let raw = of_form(Form::Raw).find_map(|value| raw_form(kind, value).ok());
    let md5 = || match of_form(Form::Md5).find_map(|value| md5_form(kind, value))?.value {
        IdValue::Md5(digest) => Some(Cow::from(hex(&digest))),
        IdValue::Raw(_) => None,
    };
    raw.or_else(md5).unwrap_or_default().as_ref().into()
}

/// Returns the values of one entry of `ids` that identify nobody, each with its field and the reason. An empty value is
/// absent, and an entry of an unknown kind has none.
pub fn ignored<'a>(
    name: &str,
    received: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str, IgnoredReason)> + use<'a> {
    IdKind::parse(name).into_iter().flat_map(move |(kind, form)| {
        let values = values(kind, received).filter(|value| !value.trim().is_empty());
        values.filter_map(move |value| match form {
            Form::Raw => Some((kind.name(), value, ignored_raw(kind, value)?)),
            Form::Md5 => Some((kind.md5_name(), value, md5_digest(value).err()?)),
        })
    })
}

/// Returns the number of ids in one entry of `ids`; 0 for an unknown kind.
pub fn count(name: &str, received: &str) -> usize {
    IdKind::parse(name).map_or(0, |(kind, _)| values(kind, received).count())
}

/// Returns the values of one entry of `ids` that identify a device, trimmed.
pub fn usable(kind: IdKind, form: Form, received: &str) -> impl Iterator<Item = &str> {
    values(kind, received).map(str::trim).filter(move |value| match form {
        Form::Raw => ignored_raw(kind, value).is_none(),
        Form::Md5 => md5_digest(value).is_ok(),
    })
}

/// Trims a click id; `None` if it identifies no click.
pub fn click_id(received: &str) -> Option<&str> {
    let trimmed = received.trim();
    placeholders::ignored_click_id(trimmed).is_none().then_some(trimmed)
}

/// Returns an event id as received; `None` if it identifies no event.
pub fn event_id(received: &str) -> Option<&str> {
    placeholders::ignored_event_id(received.trim()).is_none().then_some(received)
}

/// Returns why an event id identifies no event; `None` if it does, or is blank.
pub fn ignored_event_id(received: &str) -> Option<IgnoredReason> {
    let trimmed = received.trim();
    placeholders::ignored_event_id(trimmed).filter(|_| !trimmed.is_empty())
}

/// Splits a received value. CAIDs, one for each version of the algorithm, may be separated by commas.
fn values(kind: IdKind, received: &str) -> impl Iterator<Item = &str> {
    let is_list = kind == IdKind::Caid;
    let list = is_list.then(|| received.split(','));
    (!is_list).then_some(received).into_iter().chain(list.into_iter().flatten())
}

/// Adds the forms that every fact with this raw id has.
fn push_forms(ids: &mut Vec<DeviceId>, kind: IdKind, raw: &str) {
    let mut push_md5 =
        |text: &str| ids.push(DeviceId { kind, value: IdValue::Md5(Md5::digest(text).into()) });
    match kind {
        IdKind::Idfa => push_md5(raw),
        IdKind::Oaid | IdKind::Gaid | IdKind::Caid | IdKind::Imei => push_md5(&lower_case(raw)),
        IdKind::AndroidId => [raw, &raw.to_uppercase()].into_iter().for_each(push_md5),
        IdKind::Mac => {
            let upper = raw.to_uppercase();
            [&*upper, &with_colons(&upper)].into_iter().for_each(push_md5);
        }
        IdKind::Idfv => ids.push(DeviceId { kind, value: IdValue::Raw(raw.into()) }),
    }
}

fn further_forms(
    kind: IdKind,
    received: &str,
    raw: &str,
) -> impl Iterator<Item = DeviceId> + use<> {
    let texts = further_texts(kind, received, raw).into_iter();
    texts.map(move |text| DeviceId { kind, value: IdValue::Md5(Md5::digest(text).into()) })
}

/// Returns the further texts whose MD5 a network may have sent: the id as the app knows it, in both cases.
fn further_texts(kind: IdKind, received: &str, raw: &str) -> Vec<String> {
    let mut texts = vec![received.to_owned(), received.to_lowercase(), received.to_uppercase()];
    if is_uuid(received) {
        texts.extend([0, 1, 2].map(|index| texts[index].replace('-', "")));
    }
    if kind == IdKind::Mac {
        texts.extend([raw.to_owned(), with_colons(raw)]);
    }
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// Puts a colon between each two characters.
fn with_colons(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3 / 2);
    for (index, letter) in text.chars().enumerate() {
        if index > 0 && index % 2 == 0 {
            out.push(':');
        }
        out.push(letter);
    }
    out
}

/// Returns the raw form of an id, by which equal ids are recognised, or why the value identifies nobody.
fn raw_form(kind: IdKind, received: &str) -> Result<Cow<'_, str>, IgnoredReason> {
    let trimmed = received.trim();
    if let Some(reason) = placeholders::ignored_reason(trimmed) {
        return Err(reason);
    }
    let normalised = match kind {
        IdKind::Idfa => Cow::from(uuid(trimmed).unwrap_or(trimmed.into()).to_uppercase()),
        IdKind::Gaid | IdKind::Oaid => uuid(trimmed).unwrap_or(trimmed.into()),
        IdKind::Imei | IdKind::AndroidId => lower_case(trimmed),
        IdKind::Mac => trimmed.replace([':', '-', '.', ' '], "").to_lowercase().into(),
        IdKind::Caid => without_version(trimmed).into(),
        IdKind::Idfv => trimmed.into(),
    };
    // Without separators or version, the value can be a placeholder.
    let reason = match kind {
        IdKind::Mac | IdKind::Caid => placeholders::ignored_reason(&normalised),
        _ => None,
    };
    let is_shared = match kind {
        IdKind::Mac => SHARED_MACS.contains(&&*normalised),
        IdKind::AndroidId => {
            trimmed == SAMPLE_ANDROID_ID || SHARED_ANDROID_IDS.contains(&&*normalised)
        }
        IdKind::Imei => SHARED_IMEIS.contains(&&*normalised),
        _ => false,
    };
    reason.or(is_shared.then_some(IgnoredReason::Placeholder)).map_or(Ok(normalised), Err)
}

/// Returns why a raw id identifies nobody, without its raw form where that does not matter.
fn ignored_raw(kind: IdKind, received: &str) -> Option<IgnoredReason> {
    match kind {
        IdKind::Mac | IdKind::Caid | IdKind::AndroidId | IdKind::Imei => {
            raw_form(kind, received).err()
        }
        _ => placeholders::ignored_reason(received.trim()),
    }
}

/// Removes the version of the CAID algorithm, a date such as `20230330_`.
fn without_version(caid: &str) -> &str {
    match caid.split_once('_') {
        Some((version, rest))
            if version.len() == 8 && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest.trim_start()
        }
        _ => caid,
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if is_lower(text) { text.into() } else { text.to_lowercase().into() }
}

/// Checks whether the text is ASCII without upper-case letters. `to_lowercase` handles other text.
fn is_lower(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii())
}

/// Formats 32 hex digits, with or without UUID dashes, as a lower-case UUID with dashes.
fn uuid(text: &str) -> Option<Cow<'_, str>> {
    if !is_uuid(text) {
        return None;
    }
    if text.len() == 36 && is_lower(text) {
        return Some(text.into());
    }
    let mut uuid = String::with_capacity(36);
    for digit in text.chars().filter(|digit| *digit != '-') {
        if matches!(uuid.len(), 8 | 13 | 18 | 23) {
            uuid.push('-');
        }
        uuid.push(digit.to_ascii_lowercase());
    }
    Some(uuid.into())
}

fn md5_form(kind: IdKind, received: &str) -> Option<DeviceId> {
    md5_digest(received).ok().map(|digest| DeviceId { kind, value: IdValue::Md5(digest) })
}

fn md5_digest(received: &str) -> Result<[u8; 16], IgnoredReason> {
    let trimmed = received.trim();
    let Some(digest) = parse_hex(trimmed) else {
        return Err(placeholders::ignored_reason(trimmed).unwrap_or(IgnoredReason::NotMd5));
    };
    let is_placeholder = placeholders::is_placeholder_digest(digest);
    if is_placeholder { Err(IgnoredReason::Placeholder) } else { Ok(digest) }
}

/// Encodes bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 32 || !bytes.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Id<'a> = (&'a str, &'a str);

    fn pairs(ids: &[Id<'_>]) -> Pairs {
        ids.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn md5(text: &str) -> String {
        hex(&Md5::digest(text))
    }

    /// Compares an id of a touch with one of an activation.
    #[track_caller]
    fn check(touch: Id<'_>, activation: Id<'_>, expected: Option<IdKind>) {
        let touch_ids = DeviceIds::of_touch(&pairs(&[touch]));
        let shared = touch_ids.shared(&DeviceIds::of_app_event(&pairs(&[activation])));
        assert_eq!(shared, expected, "{touch:?} and {activation:?}");
    }

    #[track_caller]
    fn check_display(ids: &[Id<'_>], kind: IdKind, expected: &str) {
        assert_eq!(&*display(&pairs(ids), kind), expected);
    }

    #[test]
    fn raw_ids_match_in_their_raw_form() {
        let uuid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
        for kind in [IdKind::Oaid, IdKind::Gaid, IdKind::Idfa] {
            let name = kind.name();
            for same in [" 1FE9A970EFBB29E00BDDF5DBBF751AB5 ", &uuid.to_uppercase()] {
                check((name, uuid), (name, same), Some(kind));
                check((name, same), (name, uuid), Some(kind));
            }
        }
        check(("oaid", uuid), ("gaid", uuid), None);
        check(("imei", "\u{c4}\u{d6}"), ("imei", "\u{e4}\u{f6}"), Some(IdKind::Imei));
        for id in ["1234567890abcdef", "020000000000", "004999010640000"] {
            check(("android_id", id), ("android_id", id), Some(IdKind::AndroidId));
        }
        for same in ["aabbcc001122", "AA bb CC 00 11 22", "AA-BB-CC-00-11-22"] {
            check(("mac", "AA:bb:CC:00:11:22"), ("mac", same), Some(IdKind::Mac));
        }
        for same in ["abc", "20230330_abc", "20211207_x, 20230330_abc"] {
            check(("caid", "20220111_abc"), ("caid", same), Some(IdKind::Caid));
        }
        check(("caid", "2022_abc"), ("caid", "abc"), None);
        check(("idfv", uuid), ("idfv", uuid), Some(IdKind::Idfv));
    }

    #[test]
    fn md5_values_of_the_test_vectors_match() {
        for (name, raw, digest) in [
            ("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5", "83e9158a4fb54c0e1ef0b238639a23ae"),
            ("oaid", "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841", "87f8274c36eb73fabcbf143a10eca6a4"),
            ("imei", "868049039501257", "8d3ebd3654fb46a2832296669cf1b536"),
            ("android_id", "7b5ca2d57178d2f1", "873541edf36da9170af47d5b69e82193"),
            ("mac", "34:d7:12:9b:3a:89", "df97bc5021e14256e141b2f036df5a3c"),
            ("mac", "34:d7:12:9b:3a:89", "4d0433eb614f5d5ad409a65395426cbe"),
        ] {
            let name_of_md5 = format!("{name}_md5");
            for digest in [digest, &digest.to_uppercase()] {
                check((name, raw), (&name_of_md5, digest), IdKind::from_name(name));
                check((&name_of_md5, digest), (name, raw), IdKind::from_name(name));
            }
        }
    }

    #[test]
    fn an_activation_meets_more_forms_than_a_touch() {
        let received = "1FE9A970-efbb-29e0-0bdd-f5dbbf751ab5";
        let dashless = received.replace('-', "");
        for (name, text) in [
            ("oaid", received),
            ("oaid", &received.to_uppercase()),
            ("oaid", &dashless),
            ("oaid", &dashless.to_lowercase()),
            ("gaid", &dashless.to_uppercase()),
            ("idfa", &received.to_lowercase()),
            ("idfv", received),
            ("idfv", &dashless.to_lowercase()),
        ] {
            let (kind, name_of_md5) = (IdKind::from_name(name), format!("{name}_md5"));
            check((&name_of_md5, &md5(text)), (name, received), kind);
            check((name, received), (&name_of_md5, &md5(text)), None);
        }
        // The lower-case form with dashes is the raw form of an OAID, but of this one not as received.
        check(
            ("oaid_md5", &md5(&received.to_lowercase())),
            ("oaid", &dashless),
            Some(IdKind::Oaid),
        );
        check(("oaid_md5", &md5(&received.to_uppercase())), ("oaid", &dashless), None);
        let lower = "34:d7:12:9b:3a:89";
        for text in [lower, &lower.replace(':', ""), "34D7129B3A89"] {
            check(("mac_md5", &md5(text)), ("mac", "34-D7-12-9B-3A-89"), Some(IdKind::Mac));
        }
        check(("caid_md5", &md5("20230330_abc")), ("caid", "20230330_abc"), Some(IdKind::Caid));
        check(("caid_md5", &md5("abc")), ("caid", "20230330_abc"), Some(IdKind::Caid));
    }

    #[test]
    fn further_forms_are_searched_only_for_ids_received_as_md5() {
        let raw = pairs(&[("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"), ("imei", "A1")]);
        let ids = DeviceIds::of_app_event(&raw);
        let count = |received: &str| {
            let received = pairs(&[(received, &md5("x"))]);
            ids.searched(DeviceIds::of_touch(&received).received_md5()).count()
        };
        assert_eq!(
            [count("oaid"), count("mac_md5"), count("imei_md5"), count("oaid_md5")],
            [2, 2, 3, 5]
        );
        assert_eq!(ids.iter().count(), 6);
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(ids.position(id), Some(index));
        }
    }

    /// Facts with raw ids find each other without further forms.
    #[test]
    fn equal_raw_ids_are_found_without_further_forms() {
        let uuid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
        let texts = [
            uuid,
            "34:d7:12:9b:3a:89",
            "20230330_ab-C",
            "20230330_20230330_ab-C",
            "straße",
            "o\u{fb00}ice",
            "\u{212a}elvin",
        ];
        let forms = |text: &str| {
            let cases = [text.to_owned(), text.to_lowercase(), text.to_uppercase()];
            let without = |letter| cases.iter().map(move |case| case.replace(letter, ""));
            let stripped: Vec<_> = without('-').chain(without(':')).collect();
            [cases.to_vec(), stripped].concat()
        };
        let texts: Vec<String> = texts.into_iter().flat_map(forms).collect();
        let mut shared = 0;
        for kind in IdKind::ALL {
            let of = |text: &str| {
                let received = pairs(&[(kind.name(), text)]);
                [DeviceIds::of_touch(&received), DeviceIds::of_app_event(&received)]
            };
            for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
                let ([_, a_ids], b_ids) = (of(a), of(b));
                let is_shared = |b: &&DeviceIds| b.iter().any(|id| a_ids.iter().any(|it| it == id));
                for b_ids in b_ids.iter().filter(is_shared) {
                    shared += 1;
                    assert_eq!(a_ids.shared(b_ids), Some(kind), "{a:?} {b:?}");
                    let is_found =
                        a_ids.searched(b_ids.received_md5()).any(|id| b_ids.contains(id));
                    assert!(is_found, "{kind:?} {a:?} {b:?}");
                }
            }
        }
        assert!(shared > 1_000, "{shared}");
    }

    #[test]
    fn values_that_identify_nobody_are_skipped() {
        for id in [
            ("oaid", " "),
            ("oaid", "Unknown"),
            ("oaid", "__OAID__"),
            ("mac", "02:00:00:00:00:00"),
            ("mac", "02-00-00-00-00-00"),
            ("mac", "FF FF FF FF FF FF"),
            ("mac", "0.0"),
            ("android_id", "9774D56D682E549C"),
            ("android_id", "A5F5FADDDE9E9F02"),
            ("android_id", "1234567890ABCDEF"),
            ("mac", "52-54-00-12-34-56"),
            ("mac", "0215.B200.0000"),
            ("imei", " 004999010640000"),
            ("imei", "00499901064000"),
            ("imei", "812345678912345"),
            ("idfa", "D41D8CD98F00B204E9800998ECF8427E"),
            ("caid", "20230330_d41d8cd98f00b204e9800998ecf8427e"),
            ("oaid", "%7Boaid%7D"),
            ("oaid_md5", &md5("__OAID__")),
            ("imei_md5", &md5("812345678912345")),
            ("caid", "20230330_, 0"),
            ("imei_md5", &md5("000000000000000")),
            ("mac_md5", &md5("02:00:00:00:00:00")),
            ("imei_md5", "83e9158a4fb54c0e1ef0b238639a23a"),
            ("imei_md5", "+3e9158a4fb54c0e1ef0b238639a23ae"),
            ("serial", "abc"),
        ] {
            assert!(DeviceIds::of_touch(&pairs(&[id])).is_empty(), "{id:?}");
            assert!(DeviceIds::of_app_event(&pairs(&[id])).is_empty(), "{id:?}");
        }
        assert_eq!(click_id(" __CLICKID__ "), None);
        assert_eq!(click_id("0"), None);
        assert_eq!(click_id("utm_source=google-play&utm_medium=organic"), None);
        assert_eq!(click_id(" c1 "), Some("c1"));
    }

    #[test]
    fn event_ids_that_identify_no_event_are_absent() {
        use IgnoredReason::{Macro, Placeholder};
        let zeros = "0".repeat(32);
        for (text, reason) in [
            (" NULL ", Placeholder),
            ("undefined", Placeholder),
            ("(not%20set)", Placeholder),
            ("%20", Placeholder),
            (&zeros, Placeholder),
            ("00000000-0000-0000-0000-000000000000", Placeholder),
            ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", Placeholder),
            ("{event_id}", Macro),
            ("%7Bevent_id%7D", Macro),
            ("__EVENTID__", Macro),
        ] {
            assert_eq!((event_id(text), ignored_event_id(text)), (None, Some(reason)), "{text}");
        }
        for text in ["", " "] {
            assert_eq!((event_id(text), ignored_event_id(text)), (None, None), "{text:?}");
        }
        let md5_of_nothing = md5("");
        for text in ["0", "-1", "00", &zeros[1..], "-", "f", "FF", &md5_of_nothing] {
            assert_eq!((event_id(text), ignored_event_id(text)), (Some(text), None), "{text}");
        }
        for text in ["1", "7", " a ", "nulls", "#0", "e-{n}", "__EVENTID"] {
            assert_eq!((event_id(text), ignored_event_id(text)), (Some(text), None), "{text}");
        }
    }

    #[test]
    fn ignored_values_have_a_reason() {
        use IgnoredReason::{Macro, NotMd5, Placeholder};
        let reasons = |name, value| ignored(name, value).collect::<Vec<_>>();
        assert_eq!(reasons("oaid", "0"), [("oaid", "0", Placeholder)]);
        assert_eq!(reasons("oaid", "{oaid}"), [("oaid", "{oaid}", Macro)]);
        assert_eq!(reasons("caid", "20230330_a,0"), [("caid", "0", Placeholder)]);
        assert_eq!(reasons("oaid_md5", "abc"), [("oaid_md5", "abc", NotMd5)]);
        assert_eq!(reasons("oaid_md5", "__OAID__"), [("oaid_md5", "__OAID__", Macro)]);
        assert_eq!(reasons("oaid", " "), []);
        assert_eq!(reasons("serial", "0"), []);
        assert_eq!(reasons("oaid", "abc"), []);
    }

    #[test]
    fn an_id_with_several_values_matches_by_each() {
        let two = pairs(&[("oaid", "a1"), ("oaid", "a2")]);
        let touch = |value| DeviceIds::of_touch(&pairs(&[("oaid", value)]));
        for value in ["a1", "a2"] {
            assert_eq!(touch(value).shared(&DeviceIds::of_app_event(&two)), Some(IdKind::Oaid));
        }
        assert!(touch("a3").contradicts(&DeviceIds::of_app_event(&two)));
    }

    #[test]
    fn rows_show_the_first_normalised_id_or_the_received_md5() {
        let (lower, upper) =
            ("1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5", "1FE9A970-EFBB-29E0-0BDD-F5DBBF751AB5");
        check_display(&[("idfa", lower)], IdKind::Idfa, upper);
        check_display(&[("oaid", upper)], IdKind::Oaid, lower);
        let (letters, digits) = (upper.replace('1', "X"), upper.replace('-', "0"));
        for non_uuid in ["Not-A-Uuid", "1FE9A970EFBB", &letters, &digits] {
            check_display(&[("oaid", non_uuid)], IdKind::Oaid, non_uuid);
        }
        let md5 = "8d3ebd3654fb46a2832296669cf1b536";
        check_display(&[("imei_md5", &md5.to_uppercase())], IdKind::Imei, md5);
        check_display(&[("imei", "null")], IdKind::Imei, "");
        check_display(&[("oaid", "0"), ("oaid", "b"), ("oaid", "c")], IdKind::Oaid, "b");
        check_display(&[("caid", "0, 20230330_b")], IdKind::Caid, "b");
    }

    #[test]
    fn different_values_of_one_kind_contradict() {
        let digest = md5("y");
        let ids = |name, value| {
            let ids = pairs(&[(name, value)]);
            (DeviceIds::of_touch(&ids), DeviceIds::of_app_event(&ids))
        };
        let (a, same) = ids("idfa", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5");
        assert!(a.contradicts(&ids("idfa", "2fe9a970-efbb-29e0-0bdd-f5dbbf751ab5").1));
        assert!(!a.contradicts(&same));
        assert!(!a.contradicts(&ids("idfv", "x").1));
        // A touch's IDFV has no MD5 form.
        assert!(!ids("idfv", "x").0.contradicts(&ids("idfv_md5", &digest).1));
        assert!(ids("idfv_md5", &digest).0.contradicts(&ids("idfv", "x").1));
    }
}
