//! Reads librdkafka properties under their own names.

use std::collections::BTreeMap;
use std::fmt;

use crate::parse::error::{Location, is_private};
use crate::parse::secret::Secret;
use crate::parse::section::Section;
use crate::parse::tree::{Node, Table, Value};

/// The value of a librdkafka property, which can be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSetting {
    /// The location of the setting.
    pub location: Location,
    /// `None` if the text is empty.
    value: Option<Secret>,
    is_private: bool,
}

impl ClientSetting {
    /// Creates a value. The property's name determines whether it is private.
    pub fn new(location: Location, name: &str, value: &str) -> Self {
        let is_private = is_private(&client_key(name));
        Self { location, value: Secret::parse(value).ok(), is_private }
    }

    /// Returns the value itself, for the client.
    pub fn expose(&self) -> &str {
        self.value.as_ref().map_or("", Secret::expose)
    }

    /// Checks whether messages must hide the value, because of the property's name or because it came from a file.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl fmt::Debug for ClientSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_private { out.write_str("(not shown)") } else { self.expose().fmt(out) }
    }
}

/// Properties that cannot be set, because adtrail's guarantees depend on them, each with the reason.
const RESERVED: [(&str, &str); 16] = [
    ("acks", "a dead letter counts once it is acknowledged by all"),
    ("request.required.acks", "a dead letter counts once it is acknowledged by all"),
    ("enable.idempotence", "a dead letter is written once"),
    ("auto.offset.reset", "a lost position must stop adtrail, not skip events"),
    ("enable.auto.commit", "positions are kept in the store"),
    ("auto.commit.enable", "positions are kept in the store"),
    ("enable.auto.offset.store", "positions are kept in the store"),
    ("transactional.id", "the service does not use transactions"),
    ("group.id", "it is kafka.group"),
    ("bootstrap.servers", "it is kafka.brokers"),
    ("metadata.broker.list", "it is kafka.brokers"),
    ("isolation.level", "records of aborted transactions must not be read"),
    ("message.max.bytes", "a dead letter is as long as its record"),
    ("delivery.report.only.error", "a dead letter counts once its delivery is reported"),
    ("statistics.interval.ms", "lag and readiness come from it"),
    ("internal.termination.signal", "adtrail handles signals itself"),
];

/// Prefix of the properties of mock brokers.
const MOCK: &str = "test.mock.";

fn client_key(name: &str) -> String {
    format!("kafka.librdkafka.{name}")
}

/// Suffix that TOML appends to the name of a property whose value is in a file: `sasl.password = { file = "…" }`.
const FILE: &str = ".file";

/// librdkafka properties whose own names end in `.file`.
const NAMES_WITH_FILE: [&str; 3] = [
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
];

/// A value, or the path of the file that contains it.
struct RawSetting {
    node: Node,
    is_path: bool,
}

/// Reads the properties. Their names contain dots, which TOML reads as nested tables unless the name is quoted; both
/// forms are accepted.
pub(crate) fn read(section: &mut Section<'_>) -> BTreeMap<String, ClientSetting> {
    let mut flat = Vec::new();
    flatten("", section.take_all(), &mut flat);
    let mut raw_settings: BTreeMap<String, RawSetting> = BTreeMap::new();
    for (name, node) in flat {
        let is_path = name.ends_with(FILE) && !NAMES_WITH_FILE.contains(&&*name);
        let name = if is_path { name[..name.len() - FILE.len()].to_owned() } else { name };
        match raw_settings.get(&name).map(|other| &other.node) {
            Some(other) if is_from_file(other) && is_from_file(&node) => {
                let problem = format!("set twice, also at {}", other.location);
                section.error(
                    section.dotted(&name),
                    node.location,
                    problem.into(),
                    node.value.summary(),
                );
            }
            Some(other) if other.location > node.location => {}
            _ => {
                raw_settings.insert(name, RawSetting { node, is_path });
            }
        }
    }
    let mut settings = BTreeMap::new();
    for (name, RawSetting { node, is_path }) in raw_settings {
        let setting = if is_path {
            setting_from_file(section, &name, node)
        } else {
            setting(section, &name, node)
        };
        settings.extend(setting.map(|setting| (name, setting)));
    }
    settings
}

fn is_from_file(node: &Node) -> bool {
    matches!(node.location, Location::File { .. })
}

fn flatten(prefix: &str, table: Table, flat: &mut Vec<(String, Node)>) {
    for (key, node) in table {
        let name = format!("{prefix}{key}");
        // In the environment and in flags, a table is an inline TOML table.
        let is_table = |node: &Node| matches!(node.value, Value::Table(_));
        match node.parse_untyped().filter(is_table).unwrap_or(node) {
            Node { value: Value::Table(table), .. } => flatten(&format!("{name}."), table, flat),
            node => flat.push((name, node)),
        }
    }
}

fn setting(section: &mut Section<'_>, name: &str, node: Node) -> Option<ClientSetting> {
    if reject_reserved(section, name, &node) {
        return None;
    }
    let value = client_value(&node);
    if value.is_none() {
        let problem = "expected a string, a number or a boolean".into();
        section.error(section.dotted(name), node.location.clone(), problem, node.value.summary());
    }
    Some(ClientSetting::new(node.location, name, &value?))
}

fn setting_from_file(section: &mut Section<'_>, name: &str, node: Node) -> Option<ClientSetting> {
    if reject_reserved(section, name, &node) {
        return None;
    }
    let path = client_value(&node).unwrap_or_default();
    match Secret::from_file(&path) {
        Ok(value) => {
            Some(ClientSetting { location: node.location, value: Some(value), is_private: true })
        }
        Err(problem) => {
            let key = section.dotted(&format!("{name}{FILE}"));
            section.error(key, node.location, problem, node.value.summary());
            None
        }
    }
}

fn reject_reserved(section: &mut Section<'_>, name: &str, node: &Node) -> bool {
    let reserved = RESERVED.iter().find(|(reserved, _)| *reserved == name);
    let reason = reserved.map(|(_, reason)| *reason);
    let reason =
        reason.or_else(|| name.starts_with(MOCK).then_some("mock brokers are not supported"));
    if let Some(reason) = reason {
        let problem = format!("cannot be set, because {reason}");
        let value = node.value.summary();
        section.error(section.dotted(name), node.location.clone(), problem.into(), value);
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
