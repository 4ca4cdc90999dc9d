//! Reads the Kafka connection, topics and formats.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::formats::{self, Formats};
use super::librdkafka::{self, ClientSetting};
use crate::parse::address;
use crate::parse::error::Problem;
use crate::parse::section::Section;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kafka {
    /// Comma-separated.
    pub brokers: String,
    pub group: String,
    pub topics: Topics,
    pub formats: Formats,
    /// Additional librdkafka properties.
    pub librdkafka: BTreeMap<String, ClientSetting>,
}

/// The names of the three topics, all different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    pub clicks: Arc<str>,
    pub activations: Arc<str>,
    pub effects: Arc<str>,
}

pub(crate) fn read(kafka: &mut Section<'_>) -> Kafka {
    Kafka {
        brokers: kafka.text("brokers", address::parse_brokers).unwrap_or("127.0.0.1:9092".into()),
        group: kafka.text("group", parse_group).unwrap_or("adtrail".into()),
        topics: read_topics(kafka),
        formats: kafka.table("formats", formats::read),
        librdkafka: kafka.table("librdkafka", librdkafka::read),
    }
}

fn parse_group(text: &str) -> Result<String, Problem> {
    if text.trim().is_empty() { Err("expected a group name".into()) } else { Ok(text.into()) }
}

fn read_topics(kafka: &mut Section<'_>) -> Topics {
    let clicks = kafka.text("clicks", parse_topic).unwrap_or("adtrail.clicks".into());
    let activations =
        kafka.text("activations", parse_topic).unwrap_or("adtrail.activations".into());
    let effects = kafka.text("effects", parse_topic).unwrap_or("adtrail.effects".into());
    let topics = [("clicks", &clicks), ("activations", &activations), ("effects", &effects)];
    for (index, (key, topic)) in topics.iter().enumerate() {
        for (other_key, _) in topics[..index].iter().filter(|(_, other)| other == topic) {
            // The topic that is set is reported, not a default one.
            let (reported, other) =
                if kafka.is_set(key) { (key, other_key) } else { (other_key, key) };
            let problem = format!("expected three different topics, kafka.{other} is the same");
            kafka.reject(reported, problem, format!("{topic:?}"));
        }
    }
    for (key, topic) in topics {
        let is_dead_letters_of = |other: &str| **topic == *format!("{other}.dlq");
        if let Some((other, _)) = topics.iter().find(|(_, other)| is_dead_letters_of(other)) {
            let problem =
                format!("expected another topic than the dead-letter topic of kafka.{other}");
            kafka.reject(key, problem, format!("{topic:?}"));
        }
    }
    Topics { clicks, activations, effects }
}

/// Kafka allows 249 characters; the dead-letter topic appends `.dlq`.
const TOPIC_CHARS_MAX: usize = 245;

/// Parses a topic name by Kafka's rules.
fn parse_topic(text: &str) -> Result<Arc<str>, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=TOPIC_CHARS_MAX).contains(&text.len())
        && text.chars().all(allowed)
        && !matches!(text, "." | "..")
    {
        Ok(text.into())
    } else {
        Err("expected a topic name of 1 to 245 characters of a-z, A-Z, 0-9, '.', '_', '-'".into())
    }
}
