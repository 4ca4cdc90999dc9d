//! Reads the API tokens, which the settings contain only as hashes, and the apps that each token may read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use attribution::facts::device_ids::hex;
use attribution::facts::event::Pid;
use attribution::rules::policy::Policy;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::nearest;
use crate::parse::error::Problem;
use crate::parse::secret::TOKEN_PREFIX;
use crate::parse::section::Section;

/// Number of letters and digits in a token's secret: 190 bits.
pub const SECRET_CHARS: usize = 32;

const ID_CHARS_MAX: usize = 40;
/// The entry of `apps` that means all apps.
const ALL_APPS: &str = "*";

/// An entry of `[[tokens]]`. The token itself is `adt_<id>_<secret>`; only its owner has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Identifies the token in logs; not secret.
    pub id: Box<str>,
    pub digest: TokenDigest,
    pub apps: TokenApps,
    /// The time from which the token is rejected; `None` if it never expires.
    pub expires: Option<Timestamp>,
}

/// The apps that a token may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenApps {
    All,
    /// Never empty.
    Listed(BTreeSet<Pid>),
}

impl TokenApps {
    pub fn has(&self, pid: Pid) -> bool {
        match self {
            Self::All => true,
            Self::Listed(pids) => pids.contains(&pid),
        }
    }
}

/// SHA-256 of a whole token. It is never logged, although it grants no access.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Returns the form of the setting `sha256`.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let digit = |character: char| character.to_digit(16).map(|digit| digit as u8);
        let digits: Option<Vec<u8>> = text.chars().map(digit).collect();
        let bytes = digits.map(|digits| {
            digits
                .chunks(2)
                .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
                .collect()
        });
        match bytes.map(|bytes: Vec<u8>| bytes.try_into()) {
            Some(Ok(bytes)) if text.len() == 64 => Ok(Self(bytes)),
            _ => Err("expected the SHA-256 of the whole token, 64 hexadecimal digits, as \
                      `adtrail token new` prints it"
                .into()),
        }
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(not shown)")
    }
}

/// Returns the id that a token contains; `None` if the text does not have the form of a token.
pub fn token_id(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.rsplit_once('_')?;
    let is_secret =
        secret.len() == SECRET_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_id(id) && is_secret).then_some(id)
}

/// Parses the id of a token.
///
/// # Errors
/// Returns what is allowed.
pub fn parse_token_id(text: &str) -> Result<Box<str>, Problem> {
    if is_id(text) {
        return Ok(text.into());
    }
    Err(format!(
        "expected an id of 1 to {ID_CHARS_MAX} characters of a-z, 0-9 and '_', without '_' at the \
         ends"
    )
    .into())
}

/// Checks the characters of an id. With only these in it, a double click selects the whole token.
fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(is_allowed)
        && !text.starts_with('_')
        && !text.ends_with('_')
}

/// Parses the expiry of a token: an instant, or a date, which means the end of that day in UTC.
///
/// # Errors
/// Returns what is allowed.
pub fn parse_expiry(text: &str) -> Result<Timestamp, Problem> {
    expiry(text).ok_or_else(|| {
        "expected an RFC 3339 instant such as \"2027-01-31T18:00:00+08:00\", or a date such as \
         \"2027-01-31\", at whose end in UTC the token expires"
            .into()
    })
}

/// Returns an instant, or the end of a day in UTC; `None` for any other text.
pub(super) fn expiry(text: &str) -> Option<Timestamp> {
    // `Date` would accept a date-time too.
    let date = (text.len() == "2027-01-31".len()).then(|| text.parse::<Date>().ok()).flatten();
    let end_of = |date: Date| {
        let next = date.checked_add(1.day()).ok()?;
        Some(next.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    date.map_or_else(|| text.parse().ok(), end_of)
}

/// Reads the tokens of this list. The returned flag is true if all are valid.
pub(crate) fn read(
    root: &mut Section<'_>,
    list: &'static str,
    apps: &KnownApps<'_>,
    now: Timestamp,
) -> (Vec<Token>, bool) {
    let mut taken = BTreeMap::new();
    root.tables(list, |token| {
        let id = token.text("id", parse_token_id);
        let digest = token.text("sha256", TokenDigest::parse);
        let mut count = 0;
        let entries = token.texts("apps", |key| {
            count += 1;
            apps.parse(key)
        });
        let expires = token.text("expires", parse_expiry);
        token.require("id", "the token's name in logs");
        token.require("sha256", "the SHA-256 of the token, as `adtrail token new` prints it");
        token.require("apps", "keys of [[apps]], or [\"*\"] for all");
        id.iter().for_each(|id| token.require_unique("id", id, &mut taken));
        if let Some(expired) = expires.filter(|expires| *expires <= now) {
            token.warn("expires", "in the past: this token is rejected", &expired.to_string());
        }
        let apps = entries.and_then(|entries| read_apps(token, entries, count));
        Some(Token { id: id?, digest: digest?, apps: apps?, expires })
    })
}

/// One entry of `apps`.
enum AppEntry {
    All,
    App(Pid),
    /// An unknown key that may belong to an invalid app.
    Unresolved,
}

/// Returns the apps of a token. `entries` are the valid ones among `count` entries.
fn read_apps(token: &mut Section<'_>, entries: Vec<AppEntry>, count: usize) -> Option<TokenApps> {
    let is_all = entries.iter().any(|entry| matches!(entry, AppEntry::All));
    if count == 0 || is_all && count > 1 {
        let problem = "expected keys of [[apps]], or \"*\" alone for all";
        token.reject("apps", problem, format!("a list of {count}"));
        return None;
    }
    let pid = |entry| if let AppEntry::App(pid) = entry { Some(pid) } else { None };
    Some(if is_all {
        TokenApps::All
    } else {
        TokenApps::Listed(entries.into_iter().filter_map(pid).collect())
    })
}

/// The apps of the settings.
pub(crate) struct KnownApps<'a> {
    pub policy: &'a Policy,
    /// False if an invalid app was left out. Unknown keys are accepted then, because they may belong to the invalid
    /// app, whose error is already reported.
    pub complete: bool,
}

impl KnownApps<'_> {
    fn parse(&self, key: &str) -> Result<AppEntry, Problem> {
        if key == ALL_APPS {
            return Ok(AppEntry::All);
        }
        if let Some(app) = self.policy.app_by_key(key) {
            return Ok(AppEntry::App(app.pid));
        }
        if !self.complete {
            return Ok(AppEntry::Unresolved);
        }
        let known: BTreeSet<&str> = self.policy.apps().map(|app| &*app.key).collect();
        Err(nearest::unknown_name("the key of one of the [[apps]]", key, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdefABCDEFGHIJKLMNOP";

    #[track_caller]
    fn check_id(token: &str, expected: Option<&str>) {
        assert_eq!(token_id(token), expected, "{token}");
    }

    #[test]
    fn a_token_contains_its_id() {
        check_id(&format!("adt_partner_{SECRET}"), Some("partner"));
        check_id(&format!("adt_a_b_{SECRET}"), Some("a_b"));
        check_id(&format!("adt_{SECRET}"), None);
        check_id(&format!("adt__{SECRET}"), None);
        check_id(&format!("adt_A_{SECRET}"), None);
        check_id(&format!("ADT_a_{SECRET}"), None);
        check_id(&format!("adt_a_{}", &SECRET[1..]), None);
        check_id(&format!("adt_a_{SECRET}0"), None);
        check_id(&format!("adt_a_{}-", &SECRET[1..]), None);
        check_id(&format!("adt_a_{}é", &SECRET[2..]), None);
        check_id(&format!(" adt_a_{SECRET}"), None);
        check_id("adt_a_b", None);
        check_id("adt_", None);
        check_id("", None);
    }

    /// The expected value is from `printf %s TOKEN | sha256sum`.
    #[test]
    fn the_hash_is_of_the_whole_token() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = TokenDigest::of("abc");
        assert_eq!(digest.to_hex(), hex);
        for text in [hex.to_owned(), hex.to_uppercase()] {
            assert!(TokenDigest::parse(&text).is_ok_and(|parsed| parsed.matches(&digest)));
        }
        assert!(!TokenDigest::of("abd").matches(&digest));
        let nul = "00".repeat(31);
        for wrong in ["", &hex[1..], &format!("{hex}0"), &format!("{}g", &hex[1..]), &nul] {
            assert!(TokenDigest::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(format!("{digest:?}"), "(not shown)");
    }

    #[test]
    fn an_expiry_date_means_the_end_of_the_day() {
        let check = |text: &str, expected: Option<&str>| {
            let expiry = parse_expiry(text).ok().map(|expiry| expiry.to_string());
            assert_eq!(expiry.as_deref(), expected, "{text}");
        };
        check("2027-01-31", Some("2027-02-01T00:00:00Z"));
        check("2027-01-31T18:00:00+08:00", Some("2027-01-31T10:00:00Z"));
        check("2027-01-31T18:00:00Z", Some("2027-01-31T18:00:00Z"));
        check("2027-01-31T18:00", None);
        check("2027-02-29", None);
        check("9999-12-31", None);
        check("31.01.2027", None);
        check("never", None);
        check("", None);
    }
}
