//! librdkafka's own settings, by its names.

use std::collections::BTreeMap;
use std::fmt;

use crate::parse::error::{Location, is_private};
use crate::parse::secret::Secret;
use crate::parse::section::Section;
use crate::parse::tree::{Node, Table, Value};

/// The value of one of librdkafka's settings, which can be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSetting {
    /// Where it was written.
    pub place: Location,
    /// None: an empty text, which is no secret.
    value: Option<Secret>,
    is_private: bool,
}

impl ClientSetting {
    /// A value that was written where a message can say it was.
    pub fn new(place: Location, name: &str, value: &str) -> Self {
        let is_private = is_private(&client_key(name));
        Self { place, value: Secret::parse(value).ok(), is_private }
    }

    /// The value itself, for the client.
    pub fn expose(&self) -> &str {
        self.value.as_ref().map_or("", Secret::expose)
    }

    /// Whether no message may show the value: for its name, or because it came from a file.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl fmt::Debug for ClientSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_private { out.write_str("(not shown)") } else { self.expose().fmt(out) }
    }
}

/// What adtrail sets itself, and why: its promises rest on these.
const RESERVED: [(&str, &str); 16] = [
    ("acks", "a dead letter counts once it is acknowledged by all"),
    ("request.required.acks", "a dead letter counts once it is acknowledged by all"),
    ("enable.idempotence", "a dead letter is written once"),
    ("auto.offset.reset", "a lost position must stop adtrail and not skip events"),
    ("enable.auto.commit", "positions are those of the store"),
    ("auto.commit.enable", "positions are those of the store"),
    ("enable.auto.offset.store", "positions are those of the store"),
    ("transactional.id", "the service makes no transactions"),
    ("group.id", "it is kafka.group"),
    ("bootstrap.servers", "it is kafka.brokers"),
    ("metadata.broker.list", "it is kafka.brokers"),
    ("isolation.level", "what was taken back must not be read"),
    ("message.max.bytes", "a dead letter is as long as its record"),
    ("delivery.report.only.error", "a dead letter counts once adtrail is told that it is there"),
    ("statistics.interval.ms", "lag and readiness come from it"),
    ("internal.termination.signal", "signals are adtrail's"),
];

/// What makes brokers up.
const MOCK: &str = "test.mock.";

fn client_key(name: &str) -> String {
    format!("kafka.librdkafka.{name}")
}

/// What follows a setting's name where a file has the value: `sasl.password = { file = "…" }`.
const FILE: &str = ".file";

/// Names of librdkafka's own that end so.
const NAMES_WITH_FILE: [&str; 3] = [
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
];

/// A value, or the path of the file that has it.
struct Given {
    node: Node,
    is_path: bool,
}

/// The names have dots, which TOML reads as tables unless they are quoted: both are taken.
pub(crate) fn read(section: &mut Section<'_>) -> BTreeMap<String, ClientSetting> {
    let mut flat = Vec::new();
    flatten("", section.take_all(), &mut flat);
    let mut given: BTreeMap<String, Given> = BTreeMap::new();
    for (name, node) in flat {
        let is_path = name.ends_with(FILE) && !NAMES_WITH_FILE.contains(&&*name);
        let name = if is_path { name[..name.len() - FILE.len()].to_owned() } else { name };
        match given.get(&name).map(|other| &other.node) {
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
                given.insert(name, Given { node, is_path });
            }
        }
    }
    let mut settings = BTreeMap::new();
    for (name, Given { node, is_path }) in given {
        let setting = if is_path {
            setting_of_file(section, &name, node)
        } else {
            setting(section, &name, node)
        };
        settings.extend(setting.map(|setting| (name, setting)));
    }
    settings
}

fn is_of_file(node: &Node) -> bool {
    matches!(node.place, Location::File { .. })
}

fn flatten(prefix: &str, table: Table, flat: &mut Vec<(String, Node)>) {
    for (key, node) in table {
        let name = format!("{prefix}{key}");
        // In the environment and in flags such a table is a text that reads as one.
        let is_table = |node: &Node| matches!(node.value, Value::Table(_));
        match node.parse_untyped().filter(is_table).unwrap_or(node) {
            Node { value: Value::Table(table), .. } => flatten(&format!("{name}."), table, flat),
            node => flat.push((name, node)),
        }
    }
}

fn setting(section: &mut Section<'_>, name: &str, node: Node) -> Option<ClientSetting> {
    if refuse_reserved(section, name, &node) {
        return None;
    }
    let value = client_value(&node);
    if value.is_none() {
        let problem = "expected a text, a number, true or false".into();
        section.error(section.dotted(name), node.place.clone(), problem, node.value.shown());
    }
    Some(ClientSetting::new(node.place, name, &value?))
}

fn setting_of_file(section: &mut Section<'_>, name: &str, node: Node) -> Option<ClientSetting> {
    if refuse_reserved(section, name, &node) {
        return None;
    }
    let path = client_value(&node).unwrap_or_default();
    match Secret::of_file(&path) {
        Ok(value) => {
            Some(ClientSetting { place: node.place, value: Some(value), is_private: true })
        }
        Err(problem) => {
            let key = section.dotted(&format!("{name}{FILE}"));
            section.error(key, node.place, problem, node.value.shown());
            None
        }
    }
}

fn refuse_reserved(section: &mut Section<'_>, name: &str, node: &Node) -> bool {
    let reserved = RESERVED.iter().find(|(reserved, _)| *reserved == name);
    let reason = reserved.map(|(_, reason)| *reason);
    let reason = reason.or_else(|| name.starts_with(MOCK).then_some("the brokers are real"));
    if let Some(reason) = reason {
        let problem = format!("set by adtrail itself, because {reason}");
        let shown = node.value.shown();
        section.error(section.dotted(name), node.place.clone(), problem.into(), shown);
    }
    reason.is_some()
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
