//! What can be done to the value of a field.

use std::borrow::Cow;

use config::nearest::nearest;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::fields::Values;
use crate::crypto::{md5_hex, sha256_hex};
use crate::decimal;

/// All but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const DEFAULT: &str = "default:";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filter {
    Url,
    Lower,
    Upper,
    Md5,
    Sha256,
    /// Milliseconds to seconds.
    Seconds,
    Milliseconds,
    /// `2026-03-10T12:00:00.000Z`.
    Iso,
    /// `2026-03-10 12:00:00.000`.
    Utc,
    Cents,
    Decimal,
    /// AES-128 in ECB mode with `credentials.key`, in base64.
    Aes128Ecb,
    Json,
    Default(Box<str>),
}

static NAMES: [(&str, Filter); 13] = [
    ("url", Filter::Url),
    ("lower", Filter::Lower),
    ("upper", Filter::Upper),
    ("md5", Filter::Md5),
    ("sha256", Filter::Sha256),
    ("s", Filter::Seconds),
    ("ms", Filter::Milliseconds),
    ("iso", Filter::Iso),
    ("utc", Filter::Utc),
    ("cents", Filter::Cents),
    ("decimal", Filter::Decimal),
    ("aes128_ecb", Filter::Aes128Ecb),
    ("json", Filter::Json),
];

/// Percent-encodes a value of a query.
pub(crate) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

impl Filter {
    pub fn parse(name: &str) -> Result<Self, String> {
        if let Some(text) = name.strip_prefix(DEFAULT) {
            return Ok(Self::Default(text.into()));
        }
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, filter)| filter.clone()).ok_or_else(|| {
            let names = NAMES.iter().map(|(known, _)| *known).chain([DEFAULT]);
            let nearest = nearest(name, names).unwrap_or_default();
            format!("expected a filter, the nearest is {nearest:?}: {name:?}")
        })
    }

    /// Returns `None` if there is no value, or it is not of the kind that the filter takes.
    pub fn apply<'v>(
        &self,
        value: Option<Cow<'v, str>>,
        values: &Values<'_>,
    ) -> Option<Cow<'v, str>> {
        if let Self::Default(text) = self {
            return value.or_else(|| Some(text.to_string().into()));
        }
        let text = value?;
        Some(match self {
            Self::Url => url_encode(&text).into(),
            Self::Lower => text.to_lowercase().into(),
            Self::Upper => text.to_uppercase().into(),
            Self::Md5 => md5_hex(text.as_bytes()).into(),
            Self::Sha256 => sha256_hex(text.as_bytes()).into(),
            Self::Seconds => milliseconds(&text)?.div_euclid(1_000).to_string().into(),
            Self::Milliseconds => milliseconds(&text)?.to_string().into(),
            Self::Iso => format!("{:.3}", time(&text)?).into(),
            Self::Utc => time(&text)?.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string().into(),
            Self::Cents => decimal::cents(&text)?.into(),
            Self::Decimal => decimal::two_places(&text)?.into(),
            Self::Aes128Ecb => values.encrypt(&text)?.into(),
            Self::Json => {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).ok()?;
                text
            }
            Self::Default(_) => text,
        })
    }
}

fn milliseconds(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn time(text: &str) -> Option<Timestamp> {
    Timestamp::from_millisecond(milliseconds(text)?).ok()
}
