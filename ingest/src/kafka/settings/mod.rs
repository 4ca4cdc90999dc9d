//! Checks `[kafka.librdkafka]` with librdkafka itself, without a connection.

mod names;

use config::nearest::nearest;
use config::{ClientSetting, Kafka};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaConfRes;

use super::clients;

/// Minimum length of a secret that is replaced within an error; a shorter one may be part of any word.
const REPLACED_SECRET_MIN: usize = 6;

/// Rejected settings, a line each.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingErrors(Vec<String>);

/// Checks that librdkafka knows each setting and accepts its value, and then all of them together: that files exist,
/// and that settings which depend on each other are complete.
///
/// # Errors
/// Every rejected setting with its location; of the settings together, only the first error.
pub fn check(kafka: &Kafka) -> Result<(), SettingErrors> {
    let settings = kafka.librdkafka.iter();
    let mut errors: Vec<_> = settings
        .filter_map(|(key, setting)| {
            let rejection = rejection(key, setting).or_else(|| without_effect(kafka, key));
            Some((&setting.location, rejection?))
        })
        .collect();
    errors.sort();
    let mut errors: Vec<String> =
        errors.into_iter().map(|(location, error)| format!("{location}: {error}")).collect();
    if errors.is_empty() {
        errors.extend(rejection_of_all(kafka));
    }
    if errors.is_empty() { Ok(()) } else { Err(SettingErrors(errors)) }
}

fn rejection(key: &str, setting: &ClientSetting) -> Option<String> {
    let mut alone = ClientConfig::new();
    alone.set(key, setting.expose());
    let (outcome, reason) = match alone.create_native_config().err()? {
        KafkaError::ClientConfig(outcome, reason, ..) => (Some(outcome), reason),
        // The value contains a zero byte.
        _ => (None, "expected a text without a zero byte".to_owned()),
    };
    if outcome == Some(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN) {
        let nearest = nearest(key, names::NAMES).unwrap_or_default();
        return Some(format!(
            "kafka.librdkafka.{key}: unknown key, the nearest known one is: {nearest}"
        ));
    }
    // The reason contains the value.
    let reason =
        if setting.is_private() { "librdkafka rejects this value: (not shown)" } else { &reason };
    Some(format!("kafka.librdkafka.{key}: {reason}"))
}

/// Rejects a setting that librdkafka accepts but ignores with this security protocol.
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

fn rejection_of_all(kafka: &Kafka) -> Option<String> {
    let [consumer, producer] = clients::unconnected(kafka);
    let consumer = consumer.create_with_context::<_, BaseConsumer<Silent>>(Silent).map(drop);
    let producer = producer.create_with_context::<_, BaseProducer<Silent>>(Silent).map(drop);
    let reason = match consumer.and(producer).err()? {
        // Can only be one of adtrail's settings, because the user's were checked one by one.
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
    // The text around a short secret would reveal it.
    if contained.iter().any(|value| value.len() < REPLACED_SECRET_MIN) {
        return "librdkafka rejects the settings together: (not shown, it may contain a secret)"
            .into();
    }
    contained.into_iter().fold(text, |text, value| text.replace(value, "(not shown)"))
}

/// Ignores librdkafka's log; the service logs the same messages when it starts.
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
        let kafka = config::parse(&text).expect("only librdkafka rejects the settings").kafka;
        check(&kafka).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let found = check_text(text).replace("adtrail.toml:", "");
        assert_eq!(found, expected);
    }

    #[test]
    fn accepted_settings_are_valid() {
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
    fn a_setting_without_effect_is_an_error() {
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
    fn the_error_of_an_unknown_key_names_the_nearest_one() {
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
    fn rejected_values_are_reported_without_secrets() {
        check_wrong(
            "fetch.min.bytes = 'many'",
            "2: kafka.librdkafka.fetch.min.bytes: Invalid value for configuration property \
             \"fetch.min.bytes\"",
        );
        let found = check_text("security.protocol = 'sasl_ssl'\nsasl.mechanism = 'hunter2'");
        assert!(!found.contains("hunter") && found.contains("mechanism"), "{found}");
        let found = check_text("security.protocol = 'ssl'\nssl.key.pem = 'hunter3'");
        assert!(!found.contains("hunter") && found.contains("ssl.key.pem"), "{found}");
        // The text around a short secret would reveal it.
        let found = check_text("security.protocol = 'ssl'\nssl.key.pem = 'p'");
        assert!(found.ends_with("(not shown, it may contain a secret)"), "{found}");
        let found = check_text("security.protocol = 'ssl'\nssl.ca.location = '/no/such.pem'");
        assert!(found.contains("ssl.ca.location"), "{found}");
        let found = check_text("sasl.password = \"hun\\u0000ter2\"");
        assert!(found.contains("sasl.password") && !found.contains("hun"), "{found}");
    }
}
