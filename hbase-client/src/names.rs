//! Names of servers and tables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::proto::common;

/// The error for an invalid server address or table name; it states the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(String);

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    pub host: Arc<str>,
    pub port: u16,
}

impl Server {
    /// Returns `None` for an empty host or port 0.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        (!host.is_empty() && port != 0).then(|| Self { host: host.into(), port })
    }

    pub(crate) fn from_proto(name: &common::ServerName) -> Option<Self> {
        Self::new(&name.host_name, u16::try_from(name.port?).ok()?)
    }
}

impl FromStr for Server {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let parts = text.rsplit_once(':').map(|(host, port)| {
            let host =
                host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            (host, port.parse())
        });
        match parts {
            Some((host, Ok(port))) => Self::new(host, port),
            _ => None,
        }
        .ok_or_else(|| InvalidName(format!("{text:?} is not a server address: use host:port")))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A table name: `name`, or `namespace:name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    namespace: Arc<str>,
    qualifier: Arc<str>,
}

const DEFAULT_NAMESPACE: &str = "default";

impl TableName {
    pub(crate) fn meta() -> Self {
        Self { namespace: "hbase".into(), qualifier: "meta".into() }
    }

    pub(crate) fn is_meta(&self) -> bool {
        &*self.namespace == "hbase" && &*self.qualifier == "meta"
    }

    pub(crate) fn to_proto(&self) -> common::TableName {
        common::TableName {
            namespace: Bytes::copy_from_slice(self.namespace.as_bytes()),
            qualifier: Bytes::copy_from_slice(self.qualifier.as_bytes()),
        }
    }

    pub(crate) fn from_proto(name: &common::TableName) -> Option<Self> {
        let text = |bytes: &Bytes| std::str::from_utf8(bytes).ok().map(Arc::from);
        Some(Self { namespace: text(&name.namespace)?, qualifier: text(&name.qualifier)? })
    }
}

/// Writes the name in the form with which region names start: without the default namespace.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if &*self.namespace != DEFAULT_NAMESPACE {
            write!(f, "{}:", self.namespace)?;
        }
        write!(f, "{}", self.qualifier)
    }
}

impl FromStr for TableName {
    type Err = InvalidName;

    /// Enforces HBase's rules for table names, so that no other bytes get into keys of `hbase:meta`.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, qualifier) = text.split_once(':').unwrap_or((DEFAULT_NAMESPACE, text));
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let is_namespace = !namespace.is_empty() && namespace.chars().all(is_word);
        let is_allowed = |c| is_word(c) || c == '-' || c == '.';
        let starts_with_word = qualifier.chars().next().is_some_and(is_word);
        if !is_namespace || !starts_with_word || !qualifier.chars().all(is_allowed) {
            return Err(InvalidName(format!(
                "{text:?} is not a table name: use letters, digits, _, - and ., after an optional \"namespace:\""
            )));
        }
        Ok(Self { namespace: namespace.into(), qualifier: qualifier.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_parsed_and_displayed() {
        for text in ["localhost:16000", "10.0.0.1:1", "[::1]:16020"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", "localhost:", ":1", "localhost:0", "localhost:70000", "a:b"] {
            let error = text.parse::<Server>().unwrap_err().to_string();
            assert!(error.contains("host:port"), "{error}");
        }
    }

    #[test]
    fn table_names_are_parsed_and_displayed() {
        for text in ["events", "ns:events", "a-b.c_1"] {
            assert_eq!(text.parse::<TableName>().unwrap().to_string(), text);
        }
        for text in ["", ":a", "a:", "a,b", "-a", "a b", "n-s:a", "a:b:c"] {
            assert!(text.parse::<TableName>().is_err(), "{text}");
        }
    }
}
