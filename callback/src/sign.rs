//! How networks want requests signed: named steps, because a template could not express them.

use crate::credential::Credential;
use crate::crypto::{hmac_sha256_hex, md5_hex};
use crate::webhook::{ID, SIGNATURE, TIMESTAMP, WebhookKeys};

attribution::named! {
    /// How a request is signed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Signing {
        None = "none",
        /// `Authorization: Digest validTime="…", response="…"`, the HMAC of the body.
        HuaweiDigest = "huawei_digest",
        /// The parameter `sign`: the MD5 of the whole URL and the secret.
        BaiduMd5 = "baidu_md5",
        /// The parameter `sign`: the MD5 of the query and the secret.
        XiaomiMd5 = "xiaomi_md5",
        /// The headers `timestamp` and `signature`, the MD5 of the body, the time and the secret.
        OppoMd5 = "oppo_md5",
        StandardWebhooks = "standard_webhooks",
    }
}

/// A request before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    pub url: String,
    pub headers: Vec<(Box<str>, String)>,
    pub body: Vec<u8>,
    /// The signatures that were added, which are not shown to anybody.
    pub signatures: Vec<String>,
}

/// What signs the requests of an endpoint.
#[derive(Clone)]
pub(crate) enum Signer {
    None,
    HuaweiDigest(Box<str>),
    BaiduMd5(Box<str>),
    XiaomiMd5(Box<str>),
    OppoMd5(Box<str>),
    StandardWebhooks(WebhookKeys),
}

impl Signing {
    /// Returns the secret that it needs.
    pub fn credential(self) -> Option<Credential> {
        (self != Self::None).then_some(Credential::Secret)
    }

    /// # Errors
    /// If a secret is missing or wrong.
    pub fn with(self, secret: Option<&str>, previous: Option<&str>) -> Result<Signer, String> {
        let missing = || "credentials.secret: missing".to_owned();
        if self == Self::None {
            return Ok(Signer::None);
        }
        let secret = secret.ok_or_else(missing)?;
        Ok(match self {
            Self::None => Signer::None,
            Self::HuaweiDigest => Signer::HuaweiDigest(secret.into()),
            Self::BaiduMd5 => Signer::BaiduMd5(secret.into()),
            Self::XiaomiMd5 => Signer::XiaomiMd5(secret.into()),
            Self::OppoMd5 => Signer::OppoMd5(secret.into()),
            Self::StandardWebhooks => {
                let wrong = |name: &str, problem: String| format!("credentials.{name}: {problem}");
                if let Some(previous) = previous {
                    WebhookKeys::parse([previous])
                        .map_err(|problem| wrong("previous_secret", problem))?;
                }
                let keys = WebhookKeys::parse([secret].into_iter().chain(previous));
                Signer::StandardWebhooks(keys.map_err(|problem| wrong("secret", problem))?)
            }
        })
    }
}

impl Signer {
    /// Signs at this time. `id` is that of the callback.
    pub fn sign(&self, draft: &mut Draft, id: &str, now_ms: i64) {
        match self {
            Self::None => {}
            Self::HuaweiDigest(secret) => {
                let response = hmac_sha256_hex(secret.as_bytes(), &draft.body);
                let value = format!("Digest validTime=\"{now_ms}\", response=\"{response}\"");
                draft.headers.push(("Authorization".into(), value));
                draft.signatures.push(response);
            }
            Self::BaiduMd5(secret) => {
                let sign = md5_hex(format!("{}{secret}", draft.url));
                draft.add_sign(sign);
            }
            Self::XiaomiMd5(secret) => {
                let query = draft.url.split_once('?').map_or("", |(_, query)| query);
                let sign = md5_hex(format!("{query}{secret}"));
                draft.add_sign(sign);
            }
            Self::OppoMd5(secret) => {
                let end = format!("{now_ms}{secret}");
                let sign = md5_hex([&*draft.body, end.as_bytes()].concat());
                draft.headers.push(("timestamp".into(), now_ms.to_string()));
                draft.headers.push(("signature".into(), sign.clone()));
                draft.signatures.push(sign);
            }
            Self::StandardWebhooks(keys) => {
                let timestamp_s = now_ms.div_euclid(1_000);
                let signature = keys.sign(id, timestamp_s, &draft.body);
                // The version of a signature is not private.
                let values = signature.split(' ').filter_map(|one| one.split_once(','));
                draft.signatures.extend(values.map(|(_, value)| value.to_owned()));
                draft.headers.push((ID.into(), id.to_owned()));
                draft.headers.push((TIMESTAMP.into(), timestamp_s.to_string()));
                draft.headers.push((SIGNATURE.into(), signature));
            }
        }
    }
}

impl Draft {
    fn add_sign(&mut self, sign: String) {
        self.url.push(if self.url.contains('?') { '&' } else { '?' });
        self.url.push_str("sign=");
        self.url.push_str(&sign);
        self.signatures.push(sign);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_773_160_001_500;

    fn sign(signing: Signing, secret: &str, url: &str, body: &str) -> Draft {
        let (headers, signatures) = (Vec::new(), Vec::new());
        let body = body.as_bytes().to_vec();
        let mut draft = Draft { url: url.to_owned(), headers, body, signatures };
        signing.with(Some(secret), None).unwrap().sign(&mut draft, "cb_1", NOW_MS);
        draft
    }

    #[test]
    fn huawei_signs_the_body() {
        let body = r#"{"callback":"cb","conversion_type":"activate"}"#;
        let draft = sign(Signing::HuaweiDigest, "key", "https://a/", body);
        let expected = "Digest validTime=\"1773160001500\", response=\"\
                        8a93adb78bda8a1aa6a8cfec28d3fcdd1654c33ae33e2e98adc414b05a3061bd\"";
        assert_eq!(draft.headers, [("Authorization".into(), expected.to_owned())]);
    }

    #[test]
    fn baidu_signs_the_url() {
        let url = "https://als.baidu.com/cb/actionCb?a_type=activate&a_value=0";
        let draft = sign(Signing::BaiduMd5, "akey", url, "");
        assert_eq!(draft.url, format!("{url}&sign={}", md5_hex(format!("{url}akey"))));
    }

    #[test]
    fn xiaomi_signs_the_query() {
        let query = "callback=a%2Bb&oaid=12a7f9dec57adda4&conv_time=1635335972760";
        let draft = sign(Signing::XiaomiMd5, "k", &format!("https://a/api?{query}"), "");
        let sign = md5_hex(format!("{query}k"));
        assert_eq!(draft.url, format!("https://a/api?{query}&sign={sign}"));
    }

    #[test]
    fn oppo_signs_the_body_and_the_time() {
        let draft = sign(Signing::OppoMd5, "salt", "https://a/", "{}");
        let expected = [
            ("timestamp".into(), "1773160001500".to_owned()),
            ("signature".into(), md5_hex("{}1773160001500salt")),
        ];
        assert_eq!(draft.headers, expected);
    }

    #[test]
    fn webhooks_have_an_id_and_the_time_of_the_attempt() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let draft = sign(Signing::StandardWebhooks, secret, "https://a/", "{}");
        let keys = WebhookKeys::parse([secret]).unwrap();
        let expected = [
            (ID.into(), "cb_1".to_owned()),
            (TIMESTAMP.into(), "1773160001".to_owned()),
            (SIGNATURE.into(), keys.sign("cb_1", 1_773_160_001, b"{}")),
        ];
        assert_eq!(draft.headers, expected);
    }

    #[test]
    fn a_secret_is_needed() {
        for signing in Signing::ALL {
            let outcome = signing.with(None, None).map(drop);
            assert_eq!(outcome.is_ok(), signing == Signing::None, "{}", signing.name());
        }
        let problem = |secret: &str, previous: &str| {
            let outcome = Signing::StandardWebhooks.with(Some(secret), Some(previous));
            outcome.map(drop).unwrap_err()
        };
        let right = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert!(problem("hunter2", right).starts_with("credentials.secret: expected"));
        assert!(problem(right, "hunter2").starts_with("credentials.previous_secret: expected"));
    }
}
