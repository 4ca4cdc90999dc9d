//! Normalises received identifiers, each by itself.

use std::borrow::Cow;

use md5::{Digest, Md5};
use smallvec::SmallVec;

use crate::facts::event::Pairs;
use crate::facts::placeholders::{
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

/// The ids of one fact; of nearly every touch without an allocation.
pub type FewIds = SmallVec<[DeviceId; 4]>;

/// A text in ASCII; of nearly every id without an allocation.
type ShortText = SmallVec<[u8; 64]>;

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
pub fn values(kind: IdKind, received: &str) -> impl Iterator<Item = &str> {
    let is_list = kind == IdKind::Caid;
    let list = is_list.then(|| received.split(','));
    (!is_list).then_some(received).into_iter().chain(list.into_iter().flatten())
}

/// Adds the forms that every fact with this raw id has.
pub fn push_forms(ids: &mut FewIds, kind: IdKind, raw: &str) {
    let mut push_md5 = |digest| ids.push(DeviceId { kind, value: IdValue::Md5(digest) });
    match kind {
        IdKind::Idfa => push_md5(md5(raw)),
        IdKind::Oaid | IdKind::Gaid | IdKind::Caid | IdKind::Imei => {
            push_md5(md5(&*lower_case(raw)));
        }
        IdKind::AndroidId => [md5(raw), md5_of_upper_case(raw)].into_iter().for_each(push_md5),
        IdKind::Mac => {
            let digests = [md5_of_upper_case(raw), md5_of_upper_case_with_colons(raw)];
            digests.into_iter().for_each(push_md5);
        }
        IdKind::Idfv => ids.push(DeviceId { kind, value: IdValue::Raw(raw.into()) }),
    }
}

fn md5(text: impl AsRef<[u8]>) -> [u8; 16] {
    Md5::digest(text).into()
}

fn md5_of_upper_case(text: &str) -> [u8; 16] {
    if text.is_ascii() {
        md5(text.bytes().map(|byte| byte.to_ascii_uppercase()).collect::<ShortText>())
    } else {
        md5(text.to_uppercase())
    }
}

fn md5_of_upper_case_with_colons(text: &str) -> [u8; 16] {
    if !text.is_ascii() {
        return md5(with_colons(&text.to_uppercase()));
    }
    let mut upper = ShortText::new();
    for (index, byte) in text.bytes().enumerate() {
        if index > 0 && index % 2 == 0 {
            upper.push(b':');
        }
        upper.push(byte.to_ascii_uppercase());
    }
    md5(upper)
}

pub fn further_forms(
    kind: IdKind,
    received: &str,
    raw: &str,
) -> impl Iterator<Item = DeviceId> + use<> {
    let texts = further_texts(kind, received, raw).into_iter();
    texts.map(move |text| DeviceId { kind, value: IdValue::Md5(md5(text)) })
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

const MAC_SEPARATORS: [char; 4] = [':', '-', '.', ' '];

/// Returns the raw form of an id, by which equal ids are recognised, or why the value identifies nobody.
pub fn raw_form(kind: IdKind, received: &str) -> Result<Cow<'_, str>, IgnoredReason> {
    let trimmed = received.trim();
    if let Some(reason) = placeholders::ignored_reason(trimmed) {
        return Err(reason);
    }
    let normalised: Cow<'_, str> = match kind {
        IdKind::Idfa if is_upper(trimmed) && (trimmed.len() == 36 || !is_uuid(trimmed)) => {
            trimmed.into()
        }
        IdKind::Idfa => Cow::from(uuid(trimmed).unwrap_or(trimmed.into()).to_uppercase()),
        IdKind::Gaid | IdKind::Oaid => uuid(trimmed).unwrap_or(trimmed.into()),
        IdKind::Imei | IdKind::AndroidId => lower_case(trimmed),
        IdKind::Mac if !trimmed.contains(MAC_SEPARATORS) => lower_case(trimmed),
        IdKind::Mac => without_separators(trimmed).into(),
        IdKind::Caid => without_version(trimmed).into(),
        IdKind::Idfv => trimmed.into(),
    };
    // Without separators or version, the value can be a placeholder.
    let reason = match kind {
        IdKind::Mac | IdKind::Caid => placeholders::ignored_reason(&normalised),
        _ => None,
    };
    let is_json = kind == IdKind::Caid && placeholders::is_part_of_json(&normalised);
    let is_shared = match kind {
        IdKind::Mac => SHARED_MACS.contains(&&*normalised),
        IdKind::AndroidId => {
            trimmed == SAMPLE_ANDROID_ID || SHARED_ANDROID_IDS.contains(&&*normalised)
        }
        IdKind::Imei => SHARED_IMEIS.contains(&&*normalised),
        _ => false,
    };
    let is_placeholder = is_shared || is_json;
    reason.or(is_placeholder.then_some(IgnoredReason::Placeholder)).map_or(Ok(normalised), Err)
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

/// Returns a MAC address without separators, in lower case.
fn without_separators(mac: &str) -> String {
    let mut text = String::with_capacity(mac.len());
    text.extend(mac.chars().filter(|letter| !MAC_SEPARATORS.contains(letter)));
    if text.is_ascii() {
        text.make_ascii_lowercase();
        text
    } else {
        text.to_lowercase()
    }
}

/// Checks whether the text is ASCII without lower-case letters.
fn is_upper(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_lowercase() || !byte.is_ascii())
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

pub fn md5_form(kind: IdKind, received: &str) -> Option<DeviceId> {
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
    bytes.iter().flat_map(|byte| hex_digits(*byte)).map(char::from).collect()
}

/// Returns the two lower-case hex digits of a byte.
pub fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)])
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

    fn pairs(ids: &[(&str, &str)]) -> Pairs {
        ids.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[track_caller]
    fn check_display(ids: &[(&str, &str)], kind: IdKind, expected: &str) {
        assert_eq!(&*display(&pairs(ids), kind), expected);
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
        let md5_of_nothing = hex(&Md5::digest(""));
        for text in ["0", "-1", "00", &zeros[1..], "-", "f", "FF", &md5_of_nothing] {
            assert_eq!((event_id(text), ignored_event_id(text)), (Some(text), None), "{text}");
        }
        for text in ["1", "7", " a ", "nulls", "#0", "e-{n}", "__EVENTID"] {
            assert_eq!((event_id(text), ignored_event_id(text)), (Some(text), None), "{text}");
        }
    }

    #[test]
    fn upper_case_is_hashed_as_its_text_is() {
        let long = "0123456789abcdef".repeat(9);
        for text in ["", "a", "34d7129b3a89", "7b5ca2d57178d2f1", "stra\u{df}e", &long] {
            let upper = text.to_uppercase();
            assert_eq!(md5_of_upper_case(text), md5(&upper), "{text}");
            assert_eq!(md5_of_upper_case_with_colons(text), md5(with_colons(&upper)), "{text}");
        }
    }

    #[test]
    fn ignored_values_have_a_reason() {
        use IgnoredReason::{Macro, NotMd5, Placeholder};
        let reasons = |name, value| ignored(name, value).collect::<Vec<_>>();
        assert_eq!(reasons("oaid", "0"), [("oaid", "0", Placeholder)]);
        assert_eq!(reasons("oaid", "{oaid}"), [("oaid", "{oaid}", Macro)]);
        assert_eq!(reasons("caid", "20230330_a,0"), [("caid", "0", Placeholder)]);
        assert_eq!(
            reasons("caid", "[{1,b,{caid}"),
            [("caid", "[{1", Placeholder), ("caid", "{caid}", Macro)]
        );
        assert_eq!(reasons("oaid_md5", "abc"), [("oaid_md5", "abc", NotMd5)]);
        assert_eq!(reasons("oaid_md5", "__OAID__"), [("oaid_md5", "__OAID__", Macro)]);
        assert_eq!(reasons("oaid", " "), []);
        assert_eq!(reasons("serial", "0"), []);
        assert_eq!(reasons("oaid", "abc"), []);
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
}
