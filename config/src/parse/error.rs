//! Errors in settings, and their locations.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The problem with a value and what is expected instead. The error message appends the value.
pub(crate) type Problem = Cow<'static, str>;

/// The location of a setting. Locations are ordered by precedence: a later source overrides an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A line of the file, from 1.
    File { path: Arc<str>, line: usize },
    /// An environment variable.
    Environment(Arc<str>),
    /// A flag; the error's dotted key identifies it.
    Flag,
}

/// An error in the settings. Keys are dotted, and list entries are numbered from 0.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: the file cannot be read: {source}")]
    Unreadable { path: Box<str>, source: std::io::Error },
    #[error("{location}: not TOML, column {column}: {problem}")]
    Syntax { location: Location, column: usize, problem: Box<str> },
    #[error("{location}: {problem}")]
    Csv { location: Location, problem: Box<str> },
    #[error("{location}: {key}: unknown key, the nearest known one is: {nearest}")]
    UnknownKey { location: Location, key: Box<str>, nearest: Box<str> },
    #[error("{location}: {key}: missing, expected {expected}")]
    Missing { location: Location, key: Box<str>, expected: &'static str },
    #[error("{location}: {key}: {problem}")]
    Contradiction { location: Location, key: Box<str>, problem: Box<str> },
    #[error("{location}: {key}: {problem}: {value}")]
    Value { location: Location, key: Box<str>, problem: Problem, value: Box<str> },
}

/// All errors, displayed one per line; never empty.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Self {
        sort(&mut errors);
        Self(errors)
    }

    pub(crate) fn into_vec(self) -> Vec<ConfigError> {
        self.0
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

/// Sorts by location: file, then environment, then flags.
pub(crate) fn sort(errors: &mut [ConfigError]) {
    errors.sort_by(|a, b| a.location().cmp(&b.location()));
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

impl Location {
    /// The file, unless it is another source.
    pub fn file(&self) -> Option<&Arc<str>> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Environment(_) | Self::Flag => None,
        }
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
    /// Returns `None` if the error concerns the whole file.
    fn location(&self) -> Option<&Location> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Syntax { location, .. }
            | Self::Csv { location, .. }
            | Self::UnknownKey { location, .. }
            | Self::Missing { location, .. }
            | Self::Contradiction { location, .. }
            | Self::Value { location, .. } => Some(location),
        }
    }
}

/// Checks whether the value of a dotted key can be a secret or a device id, which messages and logs must not show.
pub(crate) fn is_private(key: &str) -> bool {
    const SECRETS: [&str; 4] = ["password", "secret", "sasl", "key"];
    let client_setting = key.strip_prefix("kafka.librdkafka").map(str::to_ascii_lowercase);
    // The path of a secret file is not secret.
    client_setting.is_some_and(|name| {
        !name.ends_with(".file") && SECRETS.iter().any(|word| name.contains(word))
    })
        // Device ids, and URLs that can contain a password.
        || key.contains("fraud.block_devices")
        || key.starts_with("registry.urls")
        || (key.contains(".signature.keys") && ![".not_before", ".expires"].iter().any(|end| key.ends_with(end)))
        || matches!(key, "registry.password" | "registry.token")
        // A URL of an endpoint can contain a token, too.
        || (key.starts_with("callbacks.endpoint[") && (key.contains(".credentials.") || key.ends_with(".url")))
        || (key.starts_with("tokens[") || key.starts_with("write_tokens[")) && key.ends_with(".sha256")
}
