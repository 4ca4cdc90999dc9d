//! Where events come from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::address;
use crate::error::{Place, Problem, is_private};
use crate::section::Section;
use crate::tree::{Node, Table, Value};

#[derive(Clone, PartialEq, Eq)]
pub struct Kafka {
    /// With commas between them.
    pub brokers: String,
    pub group: String,
    pub topics: Topics,
    /// librdkafka's own settings, to be applied last.
    pub librdkafka: BTreeMap<String, String>,
}

/// The names of the three topics, each another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    pub clicks: Arc<str>,
    pub activations: Arc<str>,
    pub effects: Arc<str>,
}

impl fmt::Debug for Kafka {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            let private = is_private(&client_key(name));
            (name.clone(), if private { "(not shown)".into() } else { value.clone() })
        };
        let librdkafka: BTreeMap<_, _> = self.librdkafka.iter().map(shown).collect();
        out.debug_struct("Kafka")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("topics", &self.topics)
            .field("librdkafka", &librdkafka)
            .finish()
    }
}

pub(crate) fn read(kafka: &mut Section<'_>) -> Kafka {
    Kafka {
        brokers: kafka.text("brokers", address::parse_brokers).unwrap_or("127.0.0.1:9092".into()),
        group: kafka.text("group", parse_group).unwrap_or("adtrail".into()),
        topics: read_topics(kafka),
        librdkafka: kafka.table("librdkafka", read_librdkafka),
    }
}

fn parse_group(text: &str) -> Result<String, Problem> {
    if text.trim().is_empty() { Err("expected a group's name".into()) } else { Ok(text.into()) }
}

fn read_topics(kafka: &mut Section<'_>) -> Topics {
    let clicks = kafka.text("clicks", parse_topic).unwrap_or("adtrail.clicks".into());
    let activations =
        kafka.text("activations", parse_topic).unwrap_or("adtrail.activations".into());
    let effects = kafka.text("effects", parse_topic).unwrap_or("adtrail.effects".into());
    let named = [("clicks", &clicks), ("activations", &activations), ("effects", &effects)];
    for (index, (key, topic)) in named.iter().enumerate() {
        for (other_key, _) in named[..index].iter().filter(|(_, other)| other == topic) {
            // The default cannot be to blame where only one of the two was given.
            let (given, other) =
                if kafka.is_given(key) { (key, other_key) } else { (other_key, key) };
            let problem = format!("expected a topic of its own, kafka.{other} is the same");
            kafka.reject(given, problem, format!("{topic:?}"));
        }
    }
    for (key, topic) in named {
        let is_dead_letters_of = |other: &str| **topic == *format!("{other}.dlq");
        if let Some((other, _)) = named.iter().find(|(_, other)| is_dead_letters_of(other)) {
            let problem = format!("expected another topic than the dead letters of kafka.{other}");
            kafka.reject(key, problem, format!("{topic:?}"));
        }
    }
    Topics { clicks, activations, effects }
}

/// Kafka allows 249, of which `.dlq` takes four.
const TOPIC_CHARS_MAX: usize = 245;

/// Kafka's own rule for names.
fn parse_topic(text: &str) -> Result<Arc<str>, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=TOPIC_CHARS_MAX).contains(&text.len())
        && text.chars().all(allowed)
        && !matches!(text, "." | "..")
    {
        Ok(text.into())
    } else {
        Err("expected a topic's name of 1 to 245 of a-z, A-Z, 0-9, '.', '_', '-'".into())
    }
}

/// What adtrail sets itself, and why: its promises rest on these.
const RESERVED: [(&str, &str); 10] = [
    ("acks", "a dead letter counts once it is acknowledged by all"),
    ("request.required.acks", "a dead letter counts once it is acknowledged by all"),
    ("enable.idempotence", "a dead letter is written once"),
    ("auto.offset.reset", "a lost position must stop adtrail and not skip events"),
    ("enable.auto.commit", "positions are those of the store"),
    ("auto.commit.enable", "positions are those of the store"),
    ("enable.auto.offset.store", "positions are those of the store"),
    ("group.id", "it is kafka.group"),
    ("bootstrap.servers", "it is kafka.brokers"),
    ("metadata.broker.list", "it is kafka.brokers"),
];

fn client_key(name: &str) -> String {
    format!("kafka.librdkafka.{name}")
}

/// The names have dots, which TOML reads as tables unless they are quoted: both are taken.
fn read_librdkafka(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let mut flat = Vec::new();
    flatten("", section.take_all(), &mut flat);
    let mut given: BTreeMap<String, Node> = BTreeMap::new();
    for (name, node) in flat {
        match given.get(&name) {
            Some(other) if is_of_file(other) && is_of_file(&node) => {
                let problem = format!("given twice, the other time at {}", other.place);
                section.error(
                    section.dotted(&name),
                    node.place,
                    problem.into(),
                    node.value.shown(),
                );
            }
            Some(other) if other.place > node.place => {}
            _ => {
                given.insert(name, node);
            }
        }
    }
    let mut values = BTreeMap::new();
    for (name, node) in given {
        if let Some((_, reason)) = RESERVED.iter().find(|(reserved, _)| *reserved == name) {
            let problem = format!("set by adtrail itself, because {reason}");
            section.error(section.dotted(&name), node.place, problem.into(), node.value.shown());
            continue;
        }
        match client_value(&node) {
            Some(value) => {
                values.insert(name, value);
            }
            None => {
                let problem = "expected a text, a number, true or false".into();
                section.error(section.dotted(&name), node.place, problem, node.value.shown());
            }
        }
    }
    values
}

fn is_of_file(node: &Node) -> bool {
    matches!(node.place, Place::File { .. })
}

fn flatten(prefix: &str, table: Table, flat: &mut Vec<(String, Node)>) {
    for (key, node) in table {
        let name = format!("{prefix}{key}");
        match node.value {
            Value::Table(table) => flatten(&format!("{name}."), table, flat),
            value => flat.push((name, Node { place: node.place, value })),
        }
    }
}

fn client_value(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) | Value::Literal(text) => Some(text.clone()),
        Value::Untyped(raw) => match node.parse_untyped().map(|typed| typed.value) {
            Some(Value::Text(text)) => Some(text),
            _ => Some(raw.clone()),
        },
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::List(_) | Value::Table(_) => None,
    }
}
