//! Who may read which apps: tokens, of which the settings have the hashes alone.

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

/// Letters and digits of a secret: 190 bits.
pub const SECRET_CHARS: usize = 32;

const ID_CHARS_MAX: usize = 40;
/// In `apps`: every app of the settings.
const ALL_APPS: &str = "*";

/// One entry of `[[tokens]]`. The token itself is `adt_<id>_<secret>`, which only its owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// No secret: it stands for the token in logs.
    pub id: Box<str>,
    pub digest: TokenDigest,
    pub apps: TokenApps,
    /// The first moment at which it lets nobody in; `None`: it always does.
    pub expires: Option<Timestamp>,
}

/// The apps whose rows a token shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenApps {
    All,
    /// Never empty.
    These(BTreeSet<Pid>),
}

impl TokenApps {
    pub fn has(&self, pid: Pid) -> bool {
        match self {
            Self::All => true,
            Self::These(pids) => pids.contains(&pid),
        }
    }
}

/// SHA-256 of a whole token. It is never shown, though it lets nobody in.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Takes the same time wherever the two differ.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// As `sha256` of the settings has it.
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

/// The id that a token names, if the text has the form of one.
pub fn token_id(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.rsplit_once('_')?;
    let is_secret =
        secret.len() == SECRET_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_id(id) && is_secret).then_some(id)
}

/// An id of which a token can be made.
///
/// # Errors
/// What is allowed.
pub fn parse_token_id(text: &str) -> Result<Box<str>, Problem> {
    if is_id(text) {
        return Ok(text.into());
    }
    Err(format!("expected an id of 1 to {ID_CHARS_MAX} of a-z, 0-9 and, within, '_'").into())
}

/// With these characters a double click takes the whole token.
fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(is_allowed)
        && !text.starts_with('_')
        && !text.ends_with('_')
}

/// The end of a token's life: an instant, or a date to whose end, in UTC, it is good.
///
/// # Errors
/// What is allowed.
pub fn parse_expiry(text: &str) -> Result<Timestamp, Problem> {
    // A date-time would pass for its date.
    let date = (text.len() == "2027-01-31".len()).then(|| text.parse::<Date>().ok()).flatten();
    let end_of = |date: Date| {
        let next = date.checked_add(1.day()).ok()?;
        Some(next.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    date.map_or_else(|| text.parse().ok(), end_of).ok_or_else(|| {
        "expected an RFC 3339 instant such as \"2027-01-31T18:00:00+08:00\", or a date such as \
         \"2027-01-31\", to whose end in UTC the token is good"
            .into()
    })
}

/// The tokens, and whether all could be read.
pub(crate) fn read(
    root: &mut Section<'_>,
    apps: &KnownApps<'_>,
    now: Timestamp,
) -> (Vec<Token>, bool) {
    let mut taken = BTreeMap::new();
    root.tables("tokens", |token| {
        let id = token.text("id", parse_token_id);
        let digest = token.text("sha256", TokenDigest::parse);
        let mut named = 0;
        let given = token.texts("apps", |key| {
            named += 1;
            apps.parse(key)
        });
        let expires = token.text("expires", parse_expiry);
        token.require("id", "a name for the token, which logs show");
        token.require("sha256", "the SHA-256 of the token, as `adtrail token new` prints it");
        token.require("apps", "keys of [[apps]], or [\"*\"] for all");
        id.iter().for_each(|id| token.require_unique("id", id, &mut taken));
        if let Some(expired) = expires.filter(|expires| *expires <= now) {
            token.warn(
                "expires",
                "in the past, so that this token lets nobody in",
                &expired.to_string(),
            );
        }
        let apps = given.and_then(|given| read_apps(token, given, named));
        Some(Token { id: id?, digest: digest?, apps: apps?, expires })
    })
}

/// One of `apps`.
enum Given {
    All,
    One(Pid),
    /// Of an app that could not be read.
    Unsure,
}

/// `given` are those of the `named` that are no mistakes.
fn read_apps(token: &mut Section<'_>, given: Vec<Given>, named: usize) -> Option<TokenApps> {
    let is_all = given.iter().any(|given| matches!(given, Given::All));
    if named == 0 || is_all && named > 1 {
        let problem = "expected keys of [[apps]], or \"*\" alone for all";
        token.reject("apps", problem, format!("a list of {named}"));
        return None;
    }
    let pid = |given| if let Given::One(pid) = given { Some(pid) } else { None };
    Some(if is_all {
        TokenApps::All
    } else {
        TokenApps::These(given.into_iter().filter_map(pid).collect())
    })
}

/// The apps of the settings.
pub(crate) struct KnownApps<'a> {
    pub policy: &'a Policy,
    /// Whether all of them could be read. One mistake is not reported twice.
    pub complete: bool,
}

impl KnownApps<'_> {
    fn parse(&self, key: &str) -> Result<Given, Problem> {
        if key == ALL_APPS {
            return Ok(Given::All);
        }
        if let Some(app) = self.policy.app_by_key(key) {
            return Ok(Given::One(app.pid));
        }
        if !self.complete {
            return Ok(Given::Unsure);
        }
        let known: BTreeSet<&str> = self.policy.apps().map(|app| &*app.key).collect();
        Err(nearest::expected("the key of one of the [[apps]]", key, known))
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
    fn a_token_names_its_id() {
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

    /// Against `printf %s TOKEN | sha256sum`.
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
    fn a_date_lasts_to_its_end() {
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
