//! Values that identify nobody (section 1 of the contract): placeholders of SDKs and networks, and macros that a
//! network did not expand. Both count as absent.

use std::sync::LazyLock;

use md5::{Digest, Md5};

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
const WORDS: [&str; 14] = [
    "-1",
    "null",
    "(null)",
    "nil",
    "nan",
    "unknown",
    "(unknown)",
    "undefined",
    "none",
    "n/a",
    "default",
    "false",
    "true",
    "0",
];
const WORD_MAX: usize = "undefined".len();

/// The MAC address that Android 6, iOS 7 and later return on every device, without separators.
pub const MAC_OF_EVERY_DEVICE: &str = "020000000000";
/// The `android_id` of many old devices and of emulators.
pub const ANDROID_ID_OF_MANY: &str = "9774d56d682e549c";

/// MD5 values of Tencent's list of ids that never match, which does not name the originals.
const LISTED_DIGESTS: [u128; 2] =
    [0x4b99_7118_e2db_4480_b95d_28cc_741b_3917, 0x3a6b_ff07_99c7_389f_522f_3847_c33a_468f];

/// The delimiters of macros: of ByteDance and Tencent, of most networks, of OpenRTB, of Google, and of others.
const MACRO_DELIMITERS: [(&str, &str); 7] =
    [("__", "__"), ("{", "}"), ("${", "}"), ("%%", "%%"), ("$", "$"), ("[", "]"), ("<", ">")];

/// Returns why a trimmed text identifies nobody; `None` for any other text.
pub fn ignored_reason(trimmed: &str) -> Option<IgnoredReason> {
    if is_placeholder(trimmed) {
        Some(IgnoredReason::Placeholder)
    } else {
        is_macro(trimmed).then_some(IgnoredReason::Macro)
    }
}

/// Returns the text, or the empty text if it is an unexpanded macro.
pub fn without_macro(text: &str) -> &str {
    if is_macro(text.trim()) { "" } else { text }
}

/// Checks whether an unexpanded macro fills the whole text. JSON, a UUID in braces and the part of a user agent that
/// some apps send in brackets are not macros.
fn is_macro(trimmed: &str) -> bool {
    if !trimmed.starts_with(['_', '{', '$', '%', '[', '<']) {
        return false;
    }
    MACRO_DELIMITERS.iter().any(|(open, close)| {
        let name = trimmed.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        let is_name = |name: &str| !name.is_empty() && !name.contains(['"', ';', '/']);
        name.is_some_and(|name| is_name(name) && !is_uuid(name))
    })
}

fn is_placeholder(trimmed: &str) -> bool {
    let consists_of = |digit: u8| {
        trimmed.bytes().all(|byte| matches!(byte, b'-' | b':') || byte.eq_ignore_ascii_case(&digit))
    };
    let is_word = || WORDS.iter().any(|word| trimmed.eq_ignore_ascii_case(word));
    consists_of(b'0') || consists_of(b'f') || (trimmed.len() <= WORD_MAX && is_word())
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

/// Checks whether an MD5 is that of a placeholder in a form that networks hash.
pub fn is_placeholder_digest(digest: [u8; 16]) -> bool {
    static DIGESTS: LazyLock<Vec<[u8; 16]>> = LazyLock::new(|| {
        let mut digests: Vec<_> =
            placeholder_texts().iter().map(|text| Md5::digest(text).into()).collect();
        digests.extend(LISTED_DIGESTS.map(u128::to_be_bytes));
        digests.extend([[0; 16], [0xff; 16]]);
        digests.sort_unstable();
        digests
    });
    DIGESTS.binary_search(&digest).is_ok()
}

fn placeholder_texts() -> Vec<String> {
    let mut texts = vec![String::new()];
    for word in WORDS {
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
    for first in ["00", "ff", "02"] {
        let rest = if first == "ff" { "ff" } else { "00" };
        let bytes = [first, rest, rest, rest, rest, rest];
        [":", "-", ""].into_iter().for_each(|separator| add_cases(bytes.join(separator)));
    }
    add_cases(ANDROID_ID_OF_MANY.to_owned());
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
        ] {
            assert_eq!(ignored_reason(text), Some(IgnoredReason::Placeholder), "{text}");
        }
        for text in ["1", "-2", "nulls", "0f", "unknown1", "00000000000000000001", "fe", "no"] {
            assert_eq!(ignored_reason(text), None, "{text}");
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
        ] {
            assert_eq!(ignored_reason(text), Some(IgnoredReason::Macro), "{text}");
            assert_eq!(without_macro(text), "");
        }
        let uuid = "{1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5}";
        for text in [
            "x__OAID__",
            "__OAID",
            "____",
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
        ] {
            assert!(is_known(text), "{text}");
        }
        for text in ["000000000", "868049039501257", "nULL"] {
            assert!(!is_known(text), "{text}");
        }
        assert!(LISTED_DIGESTS.iter().all(|digest| is_placeholder_digest(digest.to_be_bytes())));
        assert!(is_placeholder_digest([0; 16]) && is_placeholder_digest([0xff; 16]));
    }
}
