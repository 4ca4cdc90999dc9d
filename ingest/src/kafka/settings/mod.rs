//! `[kafka.librdkafka]` held against librdkafka, before anything is connected to.

mod names;

use std::fmt;

use config::nearest::nearest;
use config::{ClientSetting, Kafka};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaConfRes;

use super::clients;

/// A shorter secret may be part of any word.
const SECRET_SHOWN_MIN: usize = 6;

/// What librdkafka does not take, a line each.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingErrors(Vec<String>);

impl std::error::Error for SettingErrors {}

impl fmt::Display for SettingErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("\n"))
    }
}

/// That librdkafka knows each setting and takes its value, and then all of them together: that
/// files are there, and that what belongs together is given together.
///
/// # Errors
/// Each setting at fault, with its place; of all together the first fault only.
pub fn check(kafka: &Kafka) -> Result<(), SettingErrors> {
    let settings = kafka.librdkafka.iter();
    let mut errors: Vec<_> = settings
        .filter_map(|(key, setting)| {
            let refusal = refusal(key, setting).or_else(|| without_effect(kafka, key));
            Some((&setting.place, refusal?))
        })
        .collect();
    errors.sort();
    let mut errors: Vec<String> =
        errors.into_iter().map(|(place, error)| format!("{place}: {error}")).collect();
    if errors.is_empty() {
        errors.extend(refusal_of_all(kafka));
    }
    if errors.is_empty() { Ok(()) } else { Err(SettingErrors(errors)) }
}

fn refusal(key: &str, setting: &ClientSetting) -> Option<String> {
    let mut alone = ClientConfig::new();
    alone.set(key, setting.expose());
    let (outcome, reason) = match alone.create_native_config().err()? {
        KafkaError::ClientConfig(outcome, reason, ..) => (Some(outcome), reason),
        // A zero byte within it.
        _ => (None, "expected a text without a zero byte".to_owned()),
    };
    if outcome == Some(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN) {
        let nearest = nearest(key, names::NAMES).unwrap_or_default();
        return Some(format!(
            "kafka.librdkafka.{key}: unknown key, the nearest known one is: {nearest}"
        ));
    }
    // It repeats the value.
    let reason =
        if setting.is_private() { "librdkafka refuses this value: (not shown)" } else { &reason };
    Some(format!("kafka.librdkafka.{key}: {reason}"))
}

/// What librdkafka takes, and never looks at.
fn without_effect(kafka: &Kafka, key: &str) -> Option<String> {
    let protocol = kafka.librdkafka.get("security.protocol").map_or("", ClientSetting::expose);
    let protocol = protocol.to_ascii_lowercase();
    let wanted = match key.split('.').next()? {
        "sasl" if !protocol.starts_with("sasl") => "SASL_SSL or SASL_PLAINTEXT",
        "ssl" if !protocol.ends_with("ssl") => "SSL or SASL_SSL",
        _ => return None,
    };
    let name = format!("kafka.librdkafka.{key}");
    Some(format!("{name}: has no effect unless kafka.librdkafka.security.protocol is {wanted}"))
}

fn refusal_of_all(kafka: &Kafka) -> Option<String> {
    let [consumer, producer] = clients::unconnected(kafka);
    let consumer = consumer.create_with_context::<_, BaseConsumer<Silent>>(Silent).map(drop);
    let producer = producer.create_with_context::<_, BaseProducer<Silent>>(Silent).map(drop);
    let reason = match consumer.and(producer).err()? {
        // Of a setting of ours, then: the user's were looked at.
        KafkaError::ClientConfig(_, reason, key, _) => format!("{key}: {reason}"),
        KafkaError::ClientCreation(reason) => reason,
        other => other.to_string(),
    };
    Some(format!("kafka.librdkafka: {}", without_secrets(kafka, reason)))
}

fn without_secrets(kafka: &Kafka, text: String) -> String {
    let secrets = kafka.librdkafka.values().filter(|setting| setting.is_private());
    let values = secrets.map(ClientSetting::expose).filter(|value| !value.is_empty());
    let contained: Vec<&str> = values.filter(|value| text.contains(value)).collect();
    // What is left around a short one would tell it.
    if contained.iter().any(|value| value.len() < SECRET_SHOWN_MIN) {
        return "librdkafka refuses the settings together: (not shown, it may repeat a secret)"
            .into();
    }
    contained.into_iter().fold(text, |text, value| text.replace(value, "(not shown)"))
}

/// What librdkafka remarks on is remarked on when the service starts.
struct Silent;

impl ClientContext for Silent {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Silent {}

impl ProducerContext for Silent {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> String {
        let text = format!("[kafka.librdkafka]\n{text}");
        let kafka = config::parse(&text).expect("librdkafka alone objects").kafka;
        check(&kafka).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let found = check_text(text).replace("adtrail.toml:", "");
        assert_eq!(found, expected);
    }

    #[test]
    fn what_librdkafka_takes_is_right() {
        check_wrong("", "");
        check_wrong("socket.keepalive.enable = true\nfetch.min.bytes = 5", "");
        check_wrong(
            "security.protocol = 'SASL_SSL'\nsasl.mechanism = 'SCRAM-SHA-512'\n\
             sasl.username = 'u'\nsasl.password = 'hunter2'",
            "",
        );
        check_wrong("group.protocol = 'consumer'\ncompression.type = 'zstd'", "");
    }

    #[test]
    fn what_has_no_effect_is_an_error() {
        check_wrong(
            "sasl.mechanism = 'BOGUS'\nssl.ca.location = '/nonexistent'",
            "2: kafka.librdkafka.sasl.mechanism: has no effect unless \
             kafka.librdkafka.security.protocol is SASL_SSL or SASL_PLAINTEXT\n\
             3: kafka.librdkafka.ssl.ca.location: has no effect unless \
             kafka.librdkafka.security.protocol is SSL or SASL_SSL",
        );
        let found = check_text("security.protocol = 'sasl_plaintext'\nssl.key.pem = 'x'");
        assert!(found.contains("ssl.key.pem: has no effect"), "{found}");
    }

    #[test]
    fn a_short_secret_does_not_show_in_what_is_left_around_it() {
        let found = check_text("security.protocol = 'ssl'\nssl.key.pem = 'p'");
        assert!(found.ends_with("(not shown, it may repeat a secret)"), "{found}");
    }

    #[test]
    fn unknown_names_are_told_the_nearest() {
        check_wrong(
            "socket.keepalive = true",
            "2: kafka.librdkafka.socket.keepalive: unknown key, the nearest known one is: \
             socket.keepalive.enable",
        );
        check_wrong(
            "ssl.ca.locations = 'x'\nsasl.pasword = 'hunter2'",
            "2: kafka.librdkafka.ssl.ca.locations: unknown key, the nearest known one is: \
             ssl.ca.location\n3: kafka.librdkafka.sasl.pasword: unknown key, the nearest known one \
             is: sasl.password",
        );
    }

    #[test]
    fn refused_values_are_told_and_secrets_are_not() {
        check_wrong(
            "fetch.min.bytes = 'many'",
            "2: kafka.librdkafka.fetch.min.bytes: Invalid value for configuration property \
             \"fetch.min.bytes\"",
        );
        let found = check_text("security.protocol = 'sasl_ssl'\nsasl.mechanism = 'hunter2'");
        assert!(!found.contains("hunter") && found.contains("mechanism"), "{found}");
        let found = check_text("security.protocol = 'ssl'\nssl.key.pem = 'hunter3'");
        assert!(!found.contains("hunter") && found.contains("ssl.key.pem"), "{found}");
        let found = check_text("security.protocol = 'ssl'\nssl.ca.location = '/no/such.pem'");
        assert!(found.contains("ssl.ca.location"), "{found}");
        let found = check_text("sasl.password = \"hun\\u0000ter2\"");
        assert!(found.contains("sasl.password") && !found.contains("hun"), "{found}");
    }
}
