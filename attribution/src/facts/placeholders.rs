//! Values that identify nobody (section 1 of the contract): placeholders of SDKs and networks, and macros that a
//! network did not expand. Both count as absent.

use std::sync::LazyLock;

use md5::{Digest, Md5};
use memchr::memchr2;
use percent_encoding::percent_decode_str;

crate::named! {
    /// Why a received value counts as absent or takes part in no rule.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum IgnoredReason {
        /// A value that many devices send, such as `unknown` or a MAC address of zeros.
        Placeholder = "placeholder",
        /// A macro that the network did not expand.
        Macro = "macro",
        /// A value of an MD5 form that is not an MD5.
        NotMd5 = "not_md5",
        /// An `ip` that is not an address.
        NotAnAddress = "not_an_address",
    }
}

/// Words that SDKs and networks send for an unknown value, in any case.
const WORDS: [&str; 13] = [
    "null",
    "(null)",
    "nil",
    "nan",
    "unknown",
    "(unknown)",
    "(not set)",
    "undefined",
    "none",
    "n/a",
    "default",
    "false",
    "true",
];
const WORD_MAX: usize = "undefined".len();
/// Numbers that they send for one.
const NUMBERS: [&str; 2] = ["0", "-1"];

/// MAC addresses of many devices, without separators: what Android 6, iOS 7 and later return on every device, and the
/// defaults of QEMU and of the Android emulator.
pub const SHARED_MACS: [&str; 3] = ["020000000000", "525400123456", "0215b2000000"];
/// The `android_id` of many old devices and of emulators.
pub const SHARED_ANDROID_IDS: [&str; 3] =
    ["9774d56d682e549c", "a5f5faddde9e9f02", "8e17f7422b35fbea"];
/// An `android_id` in this case only. Its MD5 is in Tencent's list of ids that never match.
pub const SAMPLE_ANDROID_ID: &str = "1234567890ABCDEF";
/// The IMEI of Samsung phones that have lost theirs, with and without its check digit, and one whose MD5 is in
/// Tencent's list of ids that never match.
pub const SHARED_IMEIS: [&str; 3] = ["004999010640000", "00499901064000", "812345678912345"];

/// The referrers, decoded, that Google Play returns for an installation without a link.
const PLAY_REFERRERS: [&str; 2] =
    ["utm_source=google-play&utm_medium=organic", "utm_source=(not set)&utm_medium=(not set)"];

/// The delimiters of macros: of ByteDance and Tencent, of most networks, of OpenRTB, of Google, and of others.
const MACRO_DELIMITERS: [(&str, &str); 7] =
    [("__", "__"), ("{", "}"), ("${", "}"), ("%%", "%%"), ("$", "$"), ("[", "]"), ("<", ">")];

/// The first characters of macros, percent-encoded or not.
const MACRO_STARTS: [char; 7] = ['_', '{', '$', '%', '[', '<', '+'];
/// The names of device ids in the macros whose MD5 is known, and what may follow them: `__IMEI2__`, `{oaid_md5}`.
const MACRO_NAMES: [&str; 9] =
    ["oaid", "gaid", "idfa", "caid", "idfv", "imei", "android_id", "androidid", "mac"];
const MACRO_SUFFIXES: [&str; 5] = ["", "1", "2", "3", "_md5"];

/// Returns why a trimmed text, percent-encoded or not, identifies nobody; `None` for any other text.
pub fn ignored_reason(trimmed: &str) -> Option<IgnoredReason> {
    reason(trimmed, is_placeholder)
}

/// Returns why a trimmed event id identifies no event; `None` if it identifies one. Numbers do, because a producer may
/// count from 0.
pub fn ignored_event_id(trimmed: &str) -> Option<IgnoredReason> {
    reason(trimmed, |text| {
        text.is_empty() || is_word(text) || (is_uuid(text) && is_of_one_digit(text))
    })
}

/// Returns why the text, as it is or decoded, is ignored.
fn reason(trimmed: &str, is_placeholder: fn(&str) -> bool) -> Option<IgnoredReason> {
    let as_it_is = |text: &str| {
        if is_placeholder(text) {
            Some(IgnoredReason::Placeholder)
        } else {
            is_macro(text).then_some(IgnoredReason::Macro)
        }
    };
    as_it_is(trimmed).or_else(|| as_it_is(decoded(trimmed)?.trim()))
}

/// Returns why a trimmed click id identifies no click; `None` if it identifies one.
pub fn ignored_click_id(trimmed: &str) -> Option<IgnoredReason> {
    let referrer = || is_play_referrer(trimmed).then_some(IgnoredReason::Placeholder);
    ignored_reason(trimmed).or_else(referrer)
}

/// Checks whether a CAID is a part of JSON, percent-encoded or not. Kuaishou sends CAIDs as JSON, which is split at its
/// commas like a list, and parts of it, such as the version of the algorithm, are equal for all devices.
pub fn is_part_of_json(caid: &str) -> bool {
    let has_delimiter = |text: &str| text.contains(['"', '{', '}', '[', ']']);
    has_delimiter(caid) || decoded(caid).is_some_and(|text| has_delimiter(&text))
}

/// Checks whether the text, which may be percent-encoded twice, is what Google Play returns without a link.
fn is_play_referrer(trimmed: &str) -> bool {
    // The first letter is as it is, or encoded.
    if !trimmed.starts_with(['u', 'U', '%']) {
        return false;
    }
    let once = decoded(trimmed);
    let once = once.as_deref().unwrap_or(trimmed);
    let twice = decoded(once);
    let referrer = twice.as_deref().unwrap_or(once);
    PLAY_REFERRERS.iter().any(|known| referrer.eq_ignore_ascii_case(known))
}

/// Returns the text, or the empty text if it is an unexpanded macro, percent-encoded or not.
pub fn without_macro(text: &str) -> &str {
    // Nearly all texts begin so.
    if text.as_bytes().first().is_none_or(u8::is_ascii_alphanumeric) {
        return text;
    }
    let trimmed = text.trim();
    let is_encoded_macro = || decoded(trimmed).is_some_and(|text| is_macro(text.trim()));
    let is_macro = trimmed.starts_with(MACRO_STARTS) && (is_macro(trimmed) || is_encoded_macro());
    if is_macro { "" } else { text }
}

/// Decodes percent-encoding once, and `+` as a space; `None` if the text has neither or does not become UTF-8.
fn decoded(text: &str) -> Option<String> {
    memchr2(b'%', b'+', text.as_bytes())?;
    let spaced = text.replace('+', " ");
    Some(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned())
}

/// Checks whether an unexpanded macro fills the whole text. JSON, a UUID in braces and the part of a user agent that
/// some apps send in brackets are not macros.
fn is_macro(trimmed: &str) -> bool {
    if !trimmed.starts_with(MACRO_STARTS) {
        return false;
    }
    MACRO_DELIMITERS.iter().any(|(open, close)| {
        let name = trimmed.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        let is_name = |name: &str| !name.is_empty() && !name.contains(['"', ';', '/']);
        name.is_some_and(|name| is_name(name) && !is_uuid(name))
    })
}

fn is_placeholder(trimmed: &str) -> bool {
    is_of_one_digit(trimmed)
        || NUMBERS.contains(&trimmed)
        || is_word(trimmed)
        || is_placeholder_md5(trimmed)
}

/// Checks whether the text consists of zeros, or of `f`, and of separators. So does the empty text.
fn is_of_one_digit(text: &str) -> bool {
    let consists_of = |digit: u8| {
        text.bytes().all(|byte| matches!(byte, b'-' | b':') || byte.eq_ignore_ascii_case(&digit))
    };
    consists_of(b'0') || consists_of(b'f')
}

fn is_word(text: &str) -> bool {
    text.len() <= WORD_MAX && WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Checks whether the text is the MD5 of a placeholder, which networks also send in fields of raw ids.
fn is_placeholder_md5(text: &str) -> bool {
    let is_md5 = text.len() == 32 && is_uuid(text);
    let digest = || u128::from_str_radix(text, 16).map(u128::to_be_bytes);
    is_md5 && digest().is_ok_and(is_placeholder_digest)
}

/// Checks whether the text is 32 hex digits, with or without the dashes of a UUID.
pub fn is_uuid(text: &str) -> bool {
    let dashed = text.len() == 36;
    let is_dash = |index: usize| dashed && matches!(index, 8 | 13 | 18 | 23);
    (dashed || text.len() == 32)
        && text.bytes().enumerate().all(|(index, byte)| {
            if is_dash(index) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}

/// Checks whether an MD5 is that of a placeholder or a macro in a form that networks hash.
pub fn is_placeholder_digest(digest: [u8; 16]) -> bool {
    static DIGESTS: LazyLock<Vec<[u8; 16]>> = LazyLock::new(|| {
        let mut digests: Vec<_> =
            placeholder_texts().iter().map(|text| Md5::digest(text).into()).collect();
        digests.extend([[0; 16], [0xff; 16]]);
        digests.sort_unstable();
        digests
    });
    DIGESTS.binary_search(&digest).is_ok()
}

fn placeholder_texts() -> Vec<String> {
    let mut texts = vec![String::new(), "NaN".to_owned(), SAMPLE_ANDROID_ID.to_owned()];
    texts.extend(SHARED_IMEIS.map(str::to_owned));
    texts.extend(macro_texts());
    for word in WORDS.into_iter().chain(NUMBERS) {
        let first_letter = word.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(0);
        let mut capitalised = word.to_owned();
        capitalised[first_letter..=first_letter].make_ascii_uppercase();
        texts.extend([word.to_owned(), word.to_uppercase(), capitalised]);
    }
    texts.extend([8, 12, 14, 15, 16, 17, 32].map(|zeros| "0".repeat(zeros)));
    let mut add_cases = |text: String| texts.extend([text.to_uppercase(), text.to_lowercase()]);
    for digit in ["0", "f"] {
        let groups = [8, 4, 4, 4, 12].map(|count| digit.repeat(count));
        add_cases(groups.join("-"));
        add_cases(groups.concat());
    }
    for mac in ["000000000000", "ffffffffffff"].into_iter().chain(SHARED_MACS) {
        let bytes: Vec<_> = (0..mac.len()).step_by(2).map(|start| &mac[start..start + 2]).collect();
        [":", "-", ""].into_iter().for_each(|separator| add_cases(bytes.join(separator)));
    }
    SHARED_ANDROID_IDS.into_iter().for_each(|id| add_cases(id.to_owned()));
    texts
}

/// Returns the macros of device ids, as networks write them.
fn macro_texts() -> Vec<String> {
    let mut texts = Vec::new();
    for (open, close) in MACRO_DELIMITERS.into_iter().chain([("{{", "}}")]) {
        for name in MACRO_NAMES {
            for suffix in MACRO_SUFFIXES {
                let text = format!("{open}{name}{suffix}{close}");
                texts.extend([text.to_uppercase(), text]);
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognised_in_any_case() {
        for text in [
            "",
            "0",
            "-1",
            "NULL",
            "(null)",
            "Nil",
            "NaN",
            "Unknown",
            "(UNKNOWN)",
            "undefined",
            "none",
            "N/A",
            "Default",
            "FALSE",
            "true",
            "0000-0000",
            "00:00:00:00:00:00",
            "ffffffff",
            "FF:ff:FF",
            "-",
            "f",
            "(not set)",
            "(Not%20set)",
            "(not+set)",
            "%28null%29",
            "%20",
            "d41d8cd98f00b204e9800998ecf8427e",
            "D41D8CD98F00B204E9800998ECF8427E",
        ] {
            assert_eq!(ignored_reason(text), Some(IgnoredReason::Placeholder), "{text}");
        }
        for text in ["1", "-2", "nulls", "0f", "unknown1", "00000000000000000001", "fe", "no"] {
            assert_eq!(ignored_reason(text), None, "{text}");
        }
        for text in ["not set", "(not set", "a%20b", "a+b", "100%", "%zz", "%ff", "%25null"] {
            assert_eq!(ignored_reason(text), None, "{text}");
        }
        assert_eq!(ignored_reason("d41d8cd9-8f00-b204-e980-0998ecf8427e"), None);
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (text, expected) in [
            ("%7Bcid%7d", "{cid}"),
            ("a+b%2Bc", "a b+c"),
            ("%E4%BD%A0", "\u{4f60}"),
            ("%257B", "%7B"),
            ("%%41", "%A"),
            ("100%", "100%"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "abc", "%ff"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn the_referrers_of_play_without_a_link_are_no_click_ids() {
        for text in [
            "utm_source=google-play&utm_medium=organic",
            "utm_source%3Dgoogle-play%26utm_medium%3Dorganic",
            "utm_source=(not%20set)&utm_medium=(not%20set)",
            "utm_source=(not set)&utm_medium=(not set)",
            "utm_source=(not+set)&utm_medium=(not+set)",
            "utm_source%3D(not%2520set)%26utm_medium%3D(not%2520set)",
        ] {
            assert_eq!(ignored_click_id(text), Some(IgnoredReason::Placeholder), "{text}");
            assert_eq!(ignored_reason(text), None, "{text}");
        }
        for text in [
            "utm_source=google-play&utm_medium=organic&utm_content=c1",
            "utm_source=google-play",
            "utm_source=ads&utm_medium=organic",
            "utm_source",
            "c1",
        ] {
            assert_eq!(ignored_click_id(text), None, "{text}");
        }
    }

    #[test]
    fn macros_that_fill_the_whole_value_are_recognised() {
        for text in [
            "__OAID__",
            "__oaid__",
            "{gaid}",
            "{{ad.id}}",
            "${AUCTION_ID}",
            "$clickid$",
            "%%ADVERTISING_ID%%",
            "[id]",
            "<click id>",
            "{a}{b}",
            "%7Bcid%7D",
            "%7b%7Bcid%7d%7D",
            "$%7BCLICK_ID%7D",
            "%24%7BCLICK_ID%7D",
            "%25%25ID%25%25",
            "%5Bad+id%5D",
        ] {
            assert_eq!(ignored_reason(text), Some(IgnoredReason::Macro), "{text}");
            assert_eq!(without_macro(text), "");
        }
        let uuid = "{1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5}";
        for text in [
            "x__OAID__",
            "__OAID",
            "__OAID_",
            "_OAID__",
            "OAID__",
            "____",
            "%7Bcid",
            "a%7Bcid%7D",
            "%257Bcid%257D",
            "%7B%22a%22%3A1%7D",
            "%7B1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5%7D",
            "{}",
            "$$",
            "%%%%",
            "[]",
            "a{b}",
            r#"{"a":"b"}"#,
            r#"["a"]"#,
            "[FBAN/FBIOS;FBAV/1]",
            uuid,
        ] {
            assert_eq!(ignored_reason(text), None, "{text}");
            assert_eq!(without_macro(text), text);
        }
    }

    #[test]
    fn parts_of_json_are_recognised() {
        for text in [
            "[{\"kenyid\":\"a\"",
            "\"version\":\"20250325\"}",
            "{caid:a",
            "[1",
            "2]",
            "3}",
            "%22version%22:%2220250325%22%7D",
        ] {
            assert!(is_part_of_json(text), "{text}");
        }
        for text in ["", "2C0D2BE1", "version:1", "a%2Cb", "%zz", "a+b", "(a)", "<a>"] {
            assert!(!is_part_of_json(text), "{text}");
        }
    }

    #[test]
    fn digests_of_placeholders_are_recognised() {
        let is_known = |text: &str| is_placeholder_digest(Md5::digest(text).into());
        for text in [
            "",
            "null",
            "NULL",
            "Null",
            "N/A",
            "(Unknown)",
            "0",
            "-1",
            "00000000",
            "00000000000000000",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "02:00:00:00:00:00",
            "020000000000",
            "02-00-00-00-00-00",
            "FF:FF:FF:FF:FF:FF",
            "9774D56D682E549C",
            "9774d56d682e549c",
            "NaN",
            "(not set)",
            "1234567890ABCDEF",
            "004999010640000",
            "52:54:00:12:34:56",
            "02-15-B2-00-00-00",
            "__OAID__",
            "__IMEI2__",
            "{{android_id}}",
            "%%IDFA_MD5%%",
            "__ANDROIDID3__",
        ] {
            assert!(is_known(text), "{text}");
        }
        for text in ["000000000", "868049039501257", "nULL", "1234567890abcdef", "__Oaid__"] {
            assert!(!is_known(text), "{text}");
        }
        // Two of Tencent's list.
        for digest in ["4b997118e2db4480b95d28cc741b3917", "3a6bff0799c7389f522f3847c33a468f"] {
            assert!(is_placeholder_md5(digest), "{digest}");
        }
        assert!(is_placeholder_digest([0; 16]) && is_placeholder_digest([0xff; 16]));
    }
}
