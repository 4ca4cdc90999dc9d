//! Normalised identifiers (section 1 of the contract).
//!
//! A raw id of a kind with a defined MD5 form is represented by its MD5 values only. Equal raw values have equal MD5
//! values, so one comparison and one index entry serve both forms.

use std::borrow::Cow;

use md5::{Digest, Md5};

use super::event::Pairs;

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
    /// Parses a kind and its form: the suffix `_md5` marks the MD5 form.
    fn parse(name: &str) -> Option<(Self, Form)> {
        let (name, form) = match name.strip_suffix("_md5") {
            Some(name) => (name, Form::Md5),
            None => (name, Form::Raw),
        };
        Some((Self::from_name(name)?, form))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
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

/// The normalised device ids of one fact, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceIds(Vec<DeviceId>);

impl DeviceIds {
    /// Normalises received ids; skips unknown kinds and placeholder values.
    pub fn new(received: &Pairs) -> Self {
        let mut ids = Vec::with_capacity(2 * received.len());
        for (name, value) in received {
            match IdKind::parse(name) {
                Some((kind, Form::Raw)) => push_raw(&mut ids, kind, value),
                Some((kind, Form::Md5)) => ids.extend(md5_value(kind, value)),
                None => {}
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeviceId> {
        self.0.iter()
    }

    pub fn contains(&self, id: &DeviceId) -> bool {
        self.position(id).is_some()
    }

    /// Returns the index of the id in [`DeviceIds::iter`].
    pub fn position(&self, id: &DeviceId) -> Option<usize> {
        self.0.binary_search(id).ok()
    }

    /// Returns the best-ranked kind for which both contain an equal value.
    pub fn shared(&self, other: &Self) -> Option<IdKind> {
        self.0.iter().find(|id| other.contains(id)).map(|id| id.kind)
    }

    /// Checks whether, for some kind, both contain a value of the same form but no equal value.
    pub fn contradicts(&self, other: &Self) -> bool {
        let kinds = other.kinds();
        let is_equal = |kind| self.0.iter().any(|id| id.kind == kind && other.contains(id));
        self.0.iter().any(|id| kinds.overlaps(id.form()) && !is_equal(id.kind))
    }

    /// Returns the kinds and forms that the ids have.
    pub fn kinds(&self) -> IdKindSet {
        self.0.iter().fold(IdKindSet::default(), |kinds, id| IdKindSet(kinds.0 | id.form().0))
    }
}

/// A set of id kinds, each in raw or MD5 form. Ids whose sets do not overlap can neither match nor contradict each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct IdKindSet(pub u16);

impl IdKindSet {
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
    let ids = DeviceIds::new(&vec![(name.trim().into(), value.into())]);
    (!ids.is_empty()).then_some(ids)
}

/// Returns the value that a row shows for a kind: the normalised raw id, or the MD5 if only that was received.
pub fn display(received: &Pairs, kind: IdKind) -> Box<str> {
    let find = |form: Form| {
        received
            .iter()
            .find_map(|(name, value)| (IdKind::parse(name) == Some((kind, form))).then_some(value))
    };
    let raw = find(Form::Raw).and_then(|value| normalise(kind, value));
    let md5 = || match find(Form::Md5).and_then(|value| md5_value(kind, value))?.value {
        IdValue::Md5(digest) => Some(Cow::from(hex(&digest))),
        IdValue::Raw(_) => None,
    };
    raw.or_else(md5).unwrap_or_default().as_ref().into()
}

/// Trims a click id; `None` for a placeholder.
pub fn click_id(received: &str) -> Option<&str> {
    let trimmed = received.trim();
    (!is_placeholder(trimmed)).then_some(trimmed)
}

fn push_raw(ids: &mut Vec<DeviceId>, kind: IdKind, received: &str) {
    let Some(value) = normalise(kind, received) else { return };
    let md5 = |text: &str| DeviceId { kind, value: IdValue::Md5(Md5::digest(text).into()) };
    match kind {
        IdKind::Idfa | IdKind::Imei => ids.push(md5(&value)),
        IdKind::Oaid | IdKind::Gaid => {
            ids.push(if is_lower(&value) { md5(&value) } else { md5(&value.to_lowercase()) });
        }
        IdKind::AndroidId => ids.extend([md5(&value), md5(&value.to_uppercase())]),
        IdKind::Caid | IdKind::Idfv | IdKind::Mac => {
            ids.push(DeviceId { kind, value: IdValue::Raw(value.as_ref().into()) });
        }
    }
}

fn normalise(kind: IdKind, received: &str) -> Option<Cow<'_, str>> {
    let trimmed = received.trim();
    if is_placeholder(trimmed) {
        return None;
    }
    let normalised = match kind {
        IdKind::Idfa => Cow::from(uuid(trimmed).unwrap_or(trimmed.into()).to_uppercase()),
        IdKind::Gaid | IdKind::Oaid => uuid(trimmed).unwrap_or(trimmed.into()),
        IdKind::Imei | IdKind::AndroidId if is_lower(trimmed) => trimmed.into(),
        IdKind::Imei | IdKind::AndroidId => trimmed.to_lowercase().into(),
        IdKind::Mac => trimmed.replace([':', '-', '.', ' '], "").to_lowercase().into(),
        IdKind::Caid | IdKind::Idfv => trimmed.into(),
    };
    // Without separators, the value can be a placeholder.
    (!is_placeholder(&normalised)).then_some(normalised)
}

/// Checks whether the text is ASCII without upper-case letters. `to_lowercase` handles other text.
fn is_lower(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii())
}

/// Formats 32 hex digits, with or without UUID dashes, as a lower-case UUID with dashes.
fn uuid(text: &str) -> Option<Cow<'_, str>> {
    let dashed = text.len() == 36;
    let is_dash = |index: usize| dashed && matches!(index, 8 | 13 | 18 | 23);
    let well_formed = (dashed || text.len() == 32)
        && text.bytes().enumerate().all(|(index, byte)| {
            if is_dash(index) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        });
    if !well_formed {
        return None;
    }
    if dashed && is_lower(text) {
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

/// Values that identify no device, besides those of only zeros and separators.
const PLACEHOLDERS: [&str; 5] = ["0", "null", "unknown", "undefined", "none"];
const PLACEHOLDER_MAX: usize = "undefined".len();

fn is_placeholder(trimmed: &str) -> bool {
    trimmed.bytes().all(|byte| matches!(byte, b'0' | b'-' | b':'))
        || (trimmed.len() <= PLACEHOLDER_MAX
            && PLACEHOLDERS.iter().any(|word| trimmed.eq_ignore_ascii_case(word)))
}

fn md5_value(kind: IdKind, received: &str) -> Option<DeviceId> {
    let digest = parse_hex(received.trim())?;
    (!placeholder_digests().contains(&digest))
        .then_some(DeviceId { kind, value: IdValue::Md5(digest) })
}

/// Returns the MD5 values of common placeholders.
fn placeholder_digests() -> &'static [[u8; 16]] {
    static DIGESTS: std::sync::OnceLock<Vec<[u8; 16]>> = std::sync::OnceLock::new();
    DIGESTS.get_or_init(|| {
        let mut texts = vec![
            String::new(),
            "00:00:00:00:00:00".into(),
            "00000000-0000-0000-0000-000000000000".into(),
        ];
        texts.extend([12, 15, 16, 32].map(|zeros| "0".repeat(zeros)));
        for word in PLACEHOLDERS {
            texts.extend([word.to_lowercase(), word.to_uppercase()]);
        }
        texts.iter().map(|text| Md5::digest(text).into()).collect()
    })
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

    /// Conformance cases have every kind and form of ids; these texts are not among them.
    #[test]
    fn unusual_texts_are_normalised() {
        let check = |name: &str, value: &str, kind: IdKind, expected: &str| {
            assert_eq!(&*display(&vec![(name.into(), value.into())], kind), expected);
        };
        check("mac", "AA bb CC 00 11 22", IdKind::Mac, "aabbcc001122");
        check("imei", "\u{c4}\u{d6}", IdKind::Imei, "\u{e4}\u{f6}");
        check("imei_md5", "+3e9158a4fb54c0e1ef0b238639a23ae", IdKind::Imei, "");
        let upper = "1FE9A970-EFBB-29E0-0BDD-F5DBBF751AB5";
        let (letters, digits) = (upper.replace('1', "X"), upper.replace('-', "0"));
        for non_uuid in ["Not-A-Uuid", "1FE9A970EFBB", &letters, &digits] {
            check("oaid", non_uuid, IdKind::Oaid, non_uuid);
        }
    }
}
