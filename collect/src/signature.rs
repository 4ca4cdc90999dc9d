//! Checks the signatures of clicks and impressions. The outcome is a fact, on which attribution decides.
//!
//! A signature covers the URL, so that a request with a body has no valid one. docs/collector.md describes the schemes
//! and how sure they are.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{Config, Signature, SignatureKey, SignatureScheme};
use jiff::Timestamp;
use md5::Md5;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::CollectError;
use crate::dialect::pairs::Pairs;

/// The name of `params` with the outcome.
pub(crate) const PARAM: &str = "signature";

/// The parameter with the time from which a signature is no longer valid, in milliseconds since 1970.
const EXPIRES: &str = "expires";

/// What networks send instead of a signature that they have not made.
const MACROS: [&str; 2] = ["__SIGN__", "{{SIGN}}"];

const BLOCK_BYTES: usize = 64;

/// What a signature is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    /// The URL by which networks reach the collector, without a slash at its end.
    pub public_url: &'a str,
    /// As received.
    pub path_and_query: &'a str,
    pub has_body: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Valid,
    Missing,
    /// Made with a key that is not valid now, or `expires` has passed.
    Expired,
    Invalid,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Missing => "missing",
            Self::Expired => "expired",
            Self::Invalid => "invalid",
        }
    }

    /// Adds the outcome to the event of a touch.
    pub fn add_to(self, event: &mut Map<String, Value>) {
        put_param(event, PARAM, self.name());
    }
}

/// Adds a text to the `params` of a touch.
pub(crate) fn put_param(event: &mut Map<String, Value>, name: &str, value: &str) {
    let params = event.entry("params").or_insert_with(|| Map::new().into());
    if let Value::Object(params) = params {
        params.insert(name.to_owned(), value.into());
    }
}

/// Checks that the keys of all signatures that are checked could be read.
///
/// # Errors
/// If the file of a key cannot be read.
pub fn check_keys(config: &Config) -> Result<(), CollectError> {
    for (channel, signature) in config.signatures.iter().filter(|(_, of)| of.is_checked()) {
        for key in &signature.keys {
            if let Err(problem) = &key.secret {
                let (channel, problem) = (channel.clone(), problem.clone());
                return Err(CollectError::SignatureKey { channel, problem });
            }
        }
    }
    Ok(())
}

/// Returns the name of the parameter with a signature.
pub(crate) fn parameter(scheme: SignatureScheme) -> &'static str {
    match scheme {
        SignatureScheme::AppsFlyerV1 | SignatureScheme::HmacSha256 => "signature",
        SignatureScheme::Baidu | SignatureScheme::Xiaomi => "sign",
    }
}

/// Returns the beginning of a person's URL, up to and with the signature; without a signature, the whole URL. What
/// follows is not signed: apps append parameters to the links that people open in them.
pub(crate) fn up_to_signature(scheme: SignatureScheme, path_and_query: &str) -> &str {
    let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query };
    let is_signature = |one: &str| {
        let name = one.split_once('=').map(|(name, _)| name);
        signs_people(scheme) && name == Some(parameter(scheme))
    };
    let mut end = path.len();
    for one in query.split('&') {
        end += 1 + one.len();
        if is_signature(one) {
            break;
        }
    }
    path_and_query.get(..end).unwrap_or(path_and_query)
}

/// Returns true if links of people can be signed. In the other schemes a network alone signs, and only its reports.
fn signs_people(scheme: SignatureScheme) -> bool {
    matches!(scheme, SignatureScheme::AppsFlyerV1 | SignatureScheme::HmacSha256)
}

/// Signs the URL of a link of people, without parameters, with the newest valid key. `None` if there is none, or if the
/// scheme does not sign such links.
pub(crate) fn signed_url(signature: &Signature, url: &str, now: Timestamp) -> Option<String> {
    let scheme = signature.scheme;
    let valid = signature.keys.iter().filter(|key| signs_people(scheme) && key.is_valid_at(now));
    let secret = valid.max_by_key(|key| key.not_before)?.secret.as_ref().ok()?;
    Some(format!("{url}?{}={}", parameter(scheme), sign(scheme, secret.expose(), url)))
}

/// Checks a signature at this time.
pub(crate) fn check(signature: &Signature, signed: Signed<'_>, now: Timestamp) -> Outcome {
    let Some(Received { text, value }) = received(signature.scheme, signed) else {
        return Outcome::Missing;
    };
    let Some(expires_ms) = expires_ms(signature.scheme, signed) else { return Outcome::Invalid };
    let made = |key: &&SignatureKey| {
        // The collector does not start without its keys.
        key.secret.as_ref().is_ok_and(|secret| {
            let expected = sign(signature.scheme, secret.expose(), &text);
            bool::from(expected.as_bytes().ct_eq(value.as_bytes()))
        })
    };
    let mut keys = signature.keys.iter().filter(made).peekable();
    if signed.has_body || keys.peek().is_none() {
        return Outcome::Invalid;
    }
    let is_in_time = expires_ms > now.as_millisecond();
    if is_in_time && keys.any(|key| key.is_valid_at(now)) {
        Outcome::Valid
    } else {
        Outcome::Expired
    }
}

/// A received signature, and what it should be of.
struct Received {
    text: String,
    value: String,
}

/// Returns `None` if there is no signature.
fn received(scheme: SignatureScheme, signed: Signed<'_>) -> Option<Received> {
    let Signed { public_url, path_and_query, .. } = signed;
    let (text, value) = match scheme {
        SignatureScheme::AppsFlyerV1 | SignatureScheme::HmacSha256 => {
            // A link for people may have no other parameter.
            let last = path_and_query.rsplit_once("&signature=");
            let (before, value) = last.or_else(|| path_and_query.rsplit_once("?signature="))?;
            (format!("{public_url}{before}"), value)
        }
        SignatureScheme::Baidu => {
            let (before, value) = path_and_query.rsplit_once("&sign=")?;
            (format!("{public_url}{before}"), value)
        }
        SignatureScheme::Xiaomi => {
            let (_, query) = path_and_query.split_once('?')?;
            let value = query.split('&').find_map(|pair| pair.strip_prefix("sign="))?;
            let others = query.split('&').filter(|pair| !pair.starts_with("sign="));
            (others.collect::<Vec<_>>().join("&"), value)
        }
    };
    // Not all signers leave out the padding of base64, and some encode it. So do some networks with their macros.
    let value = percent_decode_str(value).decode_utf8_lossy();
    let value = match scheme {
        SignatureScheme::AppsFlyerV1 => value.trim_end_matches('=').to_owned(),
        _ => value.to_ascii_lowercase(),
    };
    let is_macro = MACROS.iter().any(|name| name.eq_ignore_ascii_case(&value));
    (!value.is_empty() && !is_macro).then_some(Received { text, value })
}

/// Returns the time from which the signature is no longer valid, the greatest one without it; `None` if it is not a
/// number.
fn expires_ms(scheme: SignatureScheme, signed: Signed<'_>) -> Option<i64> {
    let has_expires = matches!(scheme, SignatureScheme::AppsFlyerV1 | SignatureScheme::HmacSha256);
    let query = signed.path_and_query.split_once('?').map_or("", |(_, query)| query);
    let value = Pairs::parse(query, "")?.value(EXPIRES, false).filter(|_| has_expires);
    value.map_or(Some(i64::MAX), |value| value.parse().ok())
}

fn sign(scheme: SignatureScheme, key: &str, text: &str) -> String {
    let hmac = || hmac_sha256(key.as_bytes(), text.as_bytes());
    let md5 = || Md5::new().chain_update(text).chain_update(key).finalize();
    match scheme {
        SignatureScheme::AppsFlyerV1 => URL_SAFE_NO_PAD.encode(hmac()),
        SignatureScheme::HmacSha256 => hex(hmac()),
        SignatureScheme::Baidu | SignatureScheme::Xiaomi => hex(md5()),
    }
}

/// The HMAC of RFC 2104.
fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let hashed: [u8; 32] = Sha256::digest(key).into();
    let key = if key.len() > BLOCK_BYTES { &hashed[..] } else { key };
    let padded = |pad: u8| -> Vec<u8> {
        let block = key.iter().copied().chain(std::iter::repeat(0)).take(BLOCK_BYTES);
        block.map(|byte| byte ^ pad).collect()
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "2026-03-10T12:00:00Z";
    const BEFORE_NOON: &str = "2026-03-10T11:59:59.999Z";
    const PUBLIC_URL: &str = "https://click.example.com";
    const PATH: &str = "/click/app-x/toutiao?spreadid=7&click_id=c-1";
    const APPSFLYER: &str = "7mDdhdu9AE_6qaUCStSYqMgSVK_Cn6LFWJ3NXOQC68M";
    const HEX: &str = "ee60dd85dbbd004ffaa9a5024ad498a8c81254afc29fa2c5589dcd5ce402ebc3";

    /// Returns the settings of a channel with these keys: the secret, and the rest of the key's table.
    fn signature(scheme: &str, keys: &[(&str, &str)]) -> Signature {
        let keys: Vec<_> =
            keys.iter().map(|(key, more)| format!("{{ secret = \"{key}\"{more} }}")).collect();
        let keys = keys.join(", ");
        let text = format!(
            "[[channels]]\nid = \"c\"\n[channels.signature]\nscheme = \"{scheme}\"\nmode = \"report\"\nkeys = [{keys}]"
        );
        config::parse(&text).unwrap().signatures.remove("c").unwrap()
    }

    #[track_caller]
    fn check_at(time: &str, signature: &Signature, path_and_query: &str, expected: Outcome) {
        let signed = Signed { public_url: PUBLIC_URL, path_and_query, has_body: false };
        let found = check(signature, signed, time.parse().unwrap());
        assert_eq!(found, expected, "{time} {path_and_query}");
    }

    #[track_caller]
    fn check_scheme(scheme: &str, path_and_query: &str, expected: Outcome) {
        check_at(BEFORE_NOON, &signature(scheme, &[("key-1", "")]), path_and_query, expected);
    }

    /// The test cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn hmacs_are_those_of_the_rfc() {
        let check = |key: &[u8], text: &str, expected: &str| {
            assert_eq!(hex(hmac_sha256(key, text.as_bytes())), expected);
        };
        check(
            &[0x0b; 20],
            "Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        );
        check(
            b"Jefe",
            "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            &[0xaa; 131],
            "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
    }

    /// The signatures are those of Python's `hmac`.
    #[test]
    fn hmacs_are_of_the_url_before_them() {
        let signed = format!("{PATH}&expires=1773144000000&signature=");
        for (scheme, value) in [("appsflyer_v1", APPSFLYER), ("hmac_sha256", HEX)] {
            check_scheme(scheme, &format!("{signed}{value}"), Outcome::Valid);
            let key = signature(scheme, &[("key-1", "")]);
            check_at(NOON, &key, &format!("{signed}{value}"), Outcome::Expired);
            for (part, other) in
                [("c-1", "c-2"), ("1773144000000", "1773144000001"), ("app-x", "y")]
            {
                let changed = signed.replace(part, other);
                check_scheme(scheme, &format!("{changed}{value}"), Outcome::Invalid);
            }
            check_scheme(scheme, &format!("{signed}{value}&sub1=a"), Outcome::Invalid);
            check_scheme(scheme, &format!("{signed}0"), Outcome::Invalid);
            check_scheme(scheme, &signed, Outcome::Missing);
            check_scheme(scheme, PATH, Outcome::Missing);
            check_scheme(scheme, "/go/poster", Outcome::Missing);
            check_scheme(scheme, &format!("{PATH}&expires=x&signature=0"), Outcome::Invalid);
        }
        for padding in ["=", "%3D"] {
            let padded = format!("{signed}{APPSFLYER}{padding}");
            check_scheme("appsflyer_v1", &padded, Outcome::Valid);
        }
        check_scheme("hmac_sha256", &format!("{signed}{}", HEX.to_uppercase()), Outcome::Valid);
    }

    /// The signatures are those of Python's `hmac`.
    #[test]
    fn a_signature_may_be_the_only_parameter() {
        let hex = "bf0c029e7b714545b615baccf6b38f8e2a94a235c21171216e46aa82a0ddeefd";
        check_scheme("hmac_sha256", &format!("/go/poster?signature={hex}"), Outcome::Valid);
        check_scheme("hmac_sha256", &format!("/go/mail?signature={hex}"), Outcome::Invalid);
        check_scheme(
            "hmac_sha256",
            &format!("/go/poster?signature={hex}&sub1=a"),
            Outcome::Invalid,
        );
        let base64 = "vwwCnntxRUW2FbrM9rOPjiqUojXCEXEhbkaqgqDd7v0";
        check_scheme("appsflyer_v1", &format!("/go/poster?signature={base64}"), Outcome::Valid);
        check_scheme("appsflyer_v1", "/go/poster?signature=", Outcome::Missing);
    }

    #[test]
    fn a_link_of_people_ends_with_its_signature() {
        let check = |scheme: SignatureScheme, url: &str, expected: &str| {
            assert_eq!(up_to_signature(scheme, url), expected, "{scheme:?}");
        };
        for scheme in [SignatureScheme::HmacSha256, SignatureScheme::AppsFlyerV1] {
            let only = "/go/poster?signature=ab";
            check(scheme, only, only);
            check(scheme, &format!("{only}&fbclid=x"), only);
            let last = "/go/poster?sub1=a?signature=b&my_signature=c&expires=1&signature=ab%3D";
            check(scheme, &format!("{last}&sub2=b&signature=cd"), last);
            check(scheme, "/go/poster?signature=&sub1=a", "/go/poster?signature=");
            for unsigned in ["/go/poster", "/go/poster?", "/go/poster?sub1=a&signature&b=&"] {
                check(scheme, unsigned, unsigned);
            }
        }
        for scheme in [SignatureScheme::Baidu, SignatureScheme::Xiaomi] {
            let url = "/go/poster?sign=ab&signature=ab&sub1=a";
            check(scheme, url, url);
        }
    }

    /// The signatures are those of `printf %s TEXT | md5sum`, where the key follows the text.
    #[test]
    fn md5s_are_of_the_url_or_of_the_query() {
        let baidu = format!("{PATH}&sign=608aabe119760fbc1c8364133e099f02");
        check_scheme("baidu", &baidu, Outcome::Valid);
        check_scheme("baidu", &baidu.replace("c-1", "c-2"), Outcome::Invalid);
        for name in ["__SIGN__", "{{SIGN}}", "%7B%7BSIGN%7D%7D"] {
            check_scheme("baidu", &format!("{PATH}&sign={name}"), Outcome::Missing);
        }
        let xiaomi = "/click/app-x/xiaomi?spreadid=7&callback=a%2Bb&sign=60224f0e0ff7802abd7ecae0b47d50a5&ua=x";
        check_scheme("xiaomi", xiaomi, Outcome::Valid);
        check_scheme("xiaomi", &xiaomi.replace("ua=x", "ua=y"), Outcome::Invalid);
        check_scheme("xiaomi", "/click/app-x/xiaomi?spreadid=7&ua=x", Outcome::Missing);
        check_scheme("xiaomi", "/click/app-x/xiaomi", Outcome::Missing);
    }

    /// The query, key and signature that a program has as its example of Xiaomi's scheme.
    #[test]
    fn a_signature_of_xiaomi_is_valid() {
        let query = "callback=FqK3xF8WvgkYJGU4NDJkNjQwLWI2MzMtNDMxYS1hNTA0LTcyNDVhNWEyMDE2YlgQMTJhN2Y5ZGVjNTdhZGRhNBgF\
                     Q0xJQ0sA&oaid=12a7f9dec57adda4&conv_time=1635335972760";
        let signed = format!("/click/app-x/xiaomi?{query}&sign=0813f3cbb7f549b21ab7a7607d66b2c6");
        let key = signature("xiaomi", &[("oSLAkvLAAmeebUdi", "")]);
        check_at(NOON, &key, &signed, Outcome::Valid);
        check_at(NOON, &key, &signed.replace("oaid=1", "oaid=2"), Outcome::Invalid);
    }

    #[test]
    fn a_body_is_not_signed() {
        let path_and_query = &format!("{PATH}&sign=608aabe119760fbc1c8364133e099f02");
        let signed = Signed { public_url: PUBLIC_URL, path_and_query, has_body: true };
        let key = signature("baidu", &[("key-1", "")]);
        assert_eq!(check(&key, signed, Timestamp::now()), Outcome::Invalid);
    }

    /// Links for people are signed with the key that is valid for longest.
    #[test]
    fn a_url_is_signed_with_the_newest_valid_key() {
        let path = "/go/poster";
        let check_signed = |scheme: &str, keys: &[(&str, &str)], signer: Option<&str>| {
            let signed = signed_url(
                &signature(scheme, keys),
                &format!("{PUBLIC_URL}{path}"),
                NOON.parse().unwrap(),
            );
            assert_eq!(signed.is_some(), signer.is_some(), "{scheme} {keys:?}");
            if let Some((signed, signer)) = signed.zip(signer) {
                let signed = signed.strip_prefix(PUBLIC_URL).unwrap();
                check_at(NOON, &signature(scheme, &[(signer, "")]), signed, Outcome::Valid);
            }
        };
        let until = ", expires = \"2026-03-10T12:00:00Z\"";
        let from = ", not_before = \"2026-03-10T12:00:00Z\"";
        let later = ", not_before = \"2026-03-10T12:00:00.001Z\"";
        for scheme in ["hmac_sha256", "appsflyer_v1"] {
            check_signed(scheme, &[("key-1", "")], Some("key-1"));
            check_signed(scheme, &[("key-1", from), ("key-2", "")], Some("key-1"));
            check_signed(scheme, &[("key-1", ""), ("key-2", from)], Some("key-2"));
            check_signed(scheme, &[("key-1", ""), ("key-2", later)], Some("key-1"));
            check_signed(scheme, &[("key-1", until), ("key-2", later)], None);
        }
        check_signed("baidu", &[("key-1", "")], None);
        check_signed("xiaomi", &[("key-1", "")], None);
    }

    #[test]
    fn a_collector_needs_the_keys_that_it_checks_with() {
        let check = |mode: &str| {
            let text = format!(
                "[[channels]]\nid = \"c\"\n[channels.signature]\nscheme = \"xiaomi\"\nmode = \"{mode}\"\n\
                 keys = [{{ secret = \"a\" }}, {{ secret = {{ file = \"/no/such\" }} }}]"
            );
            check_keys(&config::parse(&text).unwrap()).map_err(|error| error.to_string())
        };
        let problem = check("report").unwrap_err();
        let expected = "channels: channel \"c\": signature.keys: the file cannot be read, ";
        assert!(problem.starts_with(expected), "{problem}");
        assert_eq!(check("off"), Ok(()));
    }

    #[test]
    fn keys_are_rotated() {
        let path_and_query = format!("{PATH}&sign=608aabe119760fbc1c8364133e099f02");
        let until = ", expires = \"2026-03-10T12:00:00Z\"";
        let from = ", not_before = \"2026-03-10T12:00:00Z\"";
        let ends = signature("baidu", &[("key-1", until), ("key-2", from)]);
        check_at(BEFORE_NOON, &ends, &path_and_query, Outcome::Valid);
        check_at(NOON, &ends, &path_and_query, Outcome::Expired);
        let begins = signature("baidu", &[("key-2", until), ("key-1", from)]);
        check_at(BEFORE_NOON, &begins, &path_and_query, Outcome::Expired);
        check_at(NOON, &begins, &path_and_query, Outcome::Valid);
        check_at(NOON, &signature("baidu", &[("key-2", "")]), &path_and_query, Outcome::Invalid);
    }

    #[test]
    fn the_outcome_is_one_of_the_params() {
        let mut event = Map::new();
        Outcome::Missing.add_to(&mut event);
        Outcome::Valid.add_to(&mut event);
        assert_eq!(Value::Object(event), serde_json::json!({"params": {"signature": "valid"}}));
    }
}
