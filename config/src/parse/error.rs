//! What can be wrong with settings, and where.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What is wrong with a value, with what is allowed instead; the value itself comes after it.
pub(crate) type Problem = Cow<'static, str>;

/// Where a setting was written, in the order in which the layers override each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A line of the file, counted from 1.
    File { path: Arc<str>, line: usize },
    /// A variable of the environment.
    Environment(Arc<str>),
    /// A flag, which goes by the dotted key.
    Flag,
}

/// One mistake in the settings. Keys are dotted, entries of lists counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: the file cannot be read: {source}")]
    Unreadable { path: Box<str>, source: std::io::Error },
    #[error("{place}: not TOML, column {column}: {problem}")]
    Syntax { place: Location, column: usize, problem: Box<str> },
    #[error("{place}: {key}: unknown key, the nearest known one is: {nearest}")]
    UnknownKey { place: Location, key: Box<str>, nearest: Box<str> },
    #[error("{place}: {key}: missing, expected {expected}")]
    Missing { place: Location, key: Box<str>, expected: &'static str },
    #[error("{place}: {key}: {problem}")]
    Contradiction { place: Location, key: Box<str>, problem: Box<str> },
    #[error("{place}: {key}: {problem}: {value}")]
    Value { place: Location, key: Box<str>, problem: Problem, value: Box<str> },
}

/// All mistakes, one a line when shown; never empty.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Self {
        sort(&mut errors);
        Self(errors)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

/// In the order of the file, then the environment, then the flags.
pub(crate) fn sort(errors: &mut [ConfigError]) {
    errors.sort_by(|a, b| a.place().cmp(&b.place()));
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{error}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(out, "{path}:{line}"),
            Self::Environment(name) => write!(out, "environment variable {name}"),
            Self::Flag => out.write_str("flag"),
        }
    }
}

impl ConfigError {
    /// `None` for a whole file.
    fn place(&self) -> Option<&Location> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Syntax { place, .. }
            | Self::UnknownKey { place, .. }
            | Self::Missing { place, .. }
            | Self::Contradiction { place, .. }
            | Self::Value { place, .. } => Some(place),
        }
    }
}

/// Whether the value of a dotted key may hold a secret or a device id, so that no message and
/// no log shows it.
pub(crate) fn is_private(key: &str) -> bool {
    const SECRETS: [&str; 4] = ["password", "secret", "sasl", "key"];
    let of_client = key.strip_prefix("kafka.librdkafka").map(str::to_ascii_lowercase);
    // A path leads to a secret, and is none.
    of_client.is_some_and(|name| {
        !name.ends_with(".file") && SECRETS.iter().any(|word| name.contains(word))
    })
        // A device id, and an address that can carry a password.
        || key.contains("fraud.block_devices")
        || key.starts_with("registry.urls")
        || matches!(key, "registry.password" | "registry.token")
        || key.starts_with("tokens[") && key.ends_with(".sha256")
}
