//! Signatures of the Standard Webhooks specification: an id, a time and an HMAC.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::crypto::hmac_sha256;

/// The prefix of secrets; it may be left out.
const PREFIX: &str = "whsec_";

/// Allowed lengths of a secret, in bytes.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

pub(crate) const ID: &str = "webhook-id";
pub(crate) const TIMESTAMP: &str = "webhook-timestamp";
pub(crate) const SIGNATURE: &str = "webhook-signature";

/// The keys of a receiver: the present one, and during a rotation the previous one.
#[derive(Clone)]
pub(crate) struct WebhookKeys(Vec<Vec<u8>>);

impl WebhookKeys {
    /// # Errors
    /// If a text is not a secret.
    pub fn parse<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Result<Self, String> {
        secrets.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the value of the header with the signatures, one for each key.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let text = [format!("{id}.{timestamp_s}.").as_bytes(), body].concat();
        let sign = |key: &Vec<u8>| format!("v1,{}", STANDARD.encode(hmac_sha256(key, &text)));
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

fn parse(secret: &str) -> Result<Vec<u8>, String> {
    let text = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = STANDARD.decode(text).ok().filter(|key| BYTES.contains(&key.len()));
    key.ok_or_else(|| {
        "expected a secret of 24 to 64 bytes in base64, with or without \"whsec_\"".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn signatures_are_those_of_the_specification() {
        let keys = WebhookKeys::parse([SECRET]).unwrap();
        assert_eq!(keys.sign(MESSAGE, TIME, BODY), SIGNED);
        let bare = SECRET.trim_start_matches(PREFIX);
        assert_eq!(WebhookKeys::parse([bare]).unwrap().sign(MESSAGE, TIME, BODY), SIGNED);
        for (id, time, body) in
            [("msg_2", TIME, BODY), (MESSAGE, TIME + 1, BODY), (MESSAGE, TIME, b"{}")]
        {
            assert_ne!(keys.sign(id, time, body), SIGNED);
        }
    }

    #[test]
    fn during_a_rotation_both_keys_sign() {
        let other = format!("{PREFIX}{}", STANDARD.encode([7_u8; 32]));
        let both = WebhookKeys::parse([SECRET, &*other]).unwrap().sign(MESSAGE, TIME, BODY);
        let alone = WebhookKeys::parse([&*other]).unwrap().sign(MESSAGE, TIME, BODY);
        assert_eq!(both, format!("{SIGNED} {alone}"));
    }

    #[test]
    fn other_texts_are_no_secrets() {
        let short = STANDARD.encode([7_u8; 23]);
        let long = STANDARD.encode([7_u8; 65]);
        for wrong in ["", "whsec_", "hunter2", "whsec_*", &*short, &*long] {
            assert!(WebhookKeys::parse([wrong]).is_err(), "{wrong}");
        }
        assert!(WebhookKeys::parse([&*STANDARD.encode([7_u8; 24])]).is_ok());
        assert!(WebhookKeys::parse([&*STANDARD.encode([7_u8; 64])]).is_ok());
    }
}
