//! Reads how the signatures of a channel's touches are checked, and what a bad one means.

use jiff::Timestamp;

use super::tokens::expiry;
use crate::parse::error::Problem;
use crate::parse::secret::Secret;
use crate::parse::section::Section;

/// One key is in use, and the next or the previous one is accepted too.
const KEYS_MAX: usize = 2;

/// How the signatures of a channel's touches are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub scheme: SignatureScheme,
    pub mode: SignatureMode,
    /// One or two.
    pub keys: Vec<SignatureKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureScheme {
    /// HMAC-SHA256 of the URL in base64, with `expires`.
    AppsFlyerV1,
    /// HMAC-SHA256 of the URL in hexadecimal digits, with `expires`.
    HmacSha256,
    /// MD5 of the URL and the key.
    Baidu,
    /// MD5 of the query and the key.
    Xiaomi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureMode {
    /// Signatures are not checked.
    Off,
    /// Touches have the outcome of the check.
    Report,
    /// A touch with a bad signature is also rejected.
    Enforce,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureKey {
    /// Why its file cannot be read, which matters only where signatures are checked or made.
    pub secret: Result<Secret, Box<str>>,
    /// The first time at which the key is valid; `None` if it always was.
    pub not_before: Option<Timestamp>,
    /// The time from which the key is no longer valid; `None` if it never expires.
    pub expires: Option<Timestamp>,
}

impl SignatureScheme {
    /// Returns true if a signature is of the whole URL, and not of the query alone.
    pub fn signs_url(self) -> bool {
        match self {
            Self::AppsFlyerV1 | Self::HmacSha256 | Self::Baidu => true,
            Self::Xiaomi => false,
        }
    }
}

impl Signature {
    pub fn is_checked(&self) -> bool {
        self.mode != SignatureMode::Off
    }
}

impl SignatureKey {
    pub fn is_valid_at(&self, time: Timestamp) -> bool {
        self.not_before.is_none_or(|from| from <= time)
            && self.expires.is_none_or(|expires| time < expires)
    }
}

/// Reads the table of a channel; `None` if it is empty or wrong.
pub(crate) fn read(signature: &mut Section<'_>) -> Option<Signature> {
    let scheme = signature.text("scheme", parse_scheme);
    let mode = signature.text("mode", parse_mode);
    let (keys, are_valid) = signature.tables("keys", read_key);
    if !["scheme", "mode", "keys"].iter().any(|key| signature.is_set(key)) {
        return None;
    }
    signature.require("scheme", "how the channel signs");
    signature.require("mode", "what a bad signature means");
    signature.require("keys", "one or two keys");
    if signature.is_set("keys") && are_valid && !(1..=KEYS_MAX).contains(&keys.len()) {
        let problem = format!("expected one or two keys, found {}", keys.len());
        signature.contradict("keys", problem);
    }
    Some(Signature { scheme: scheme?, mode: mode?, keys })
}

fn read_key(key: &mut Section<'_>) -> Option<SignatureKey> {
    let secret = key.secret_of_some("secret");
    let not_before = key.text("not_before", parse_not_before);
    let expires = key.text("expires", parse_expiry);
    key.require("secret", "the key that signs");
    if let (Some(from), Some(expires)) = (not_before, expires)
        && expires <= from
    {
        key.reject("expires", "expected a time after not_before", format!("\"{expires}\""));
    }
    let secret = secret?.map_err(|problem| problem.into_owned().into_boxed_str());
    Some(SignatureKey { secret, not_before, expires })
}

fn parse_not_before(text: &str) -> Result<Timestamp, Problem> {
    let expected = r#"expected an RFC 3339 instant such as "2027-01-31T18:00:00+08:00""#;
    text.parse().map_err(|_| expected.into())
}

fn parse_expiry(text: &str) -> Result<Timestamp, Problem> {
    expiry(text).ok_or_else(|| {
        "expected an RFC 3339 instant such as \"2027-01-31T18:00:00+08:00\", or a date such as \
         \"2027-01-31\", at whose end in UTC the key expires"
            .into()
    })
}

fn parse_scheme(text: &str) -> Result<SignatureScheme, Problem> {
    match text {
        "appsflyer_v1" => Ok(SignatureScheme::AppsFlyerV1),
        "hmac_sha256" => Ok(SignatureScheme::HmacSha256),
        "baidu" => Ok(SignatureScheme::Baidu),
        "xiaomi" => Ok(SignatureScheme::Xiaomi),
        _ => Err(r#"expected "appsflyer_v1", "hmac_sha256", "baidu" or "xiaomi""#.into()),
    }
}

fn parse_mode(text: &str) -> Result<SignatureMode, Problem> {
    match text {
        "off" => Ok(SignatureMode::Off),
        "report" => Ok(SignatureMode::Report),
        "enforce" => Ok(SignatureMode::Enforce),
        _ => Err(r#"expected "off", "report" or "enforce""#.into()),
    }
}
