//! Reads the connection settings of a shared store in HBase.

use super::tls::{self, Tls};
use crate::parse::error::Problem;
use crate::parse::section::Section;

/// The connection to a cluster, and the tables of one store in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HBase {
    /// Masters or region servers, `host:port`; one that responds is enough to find the cluster.
    pub servers: Vec<Box<str>>,
    /// Prefix of the table names, optionally with a namespace.
    pub prefix: Box<str>,
    /// The user name that is sent to HBase.
    pub user: Box<str>,
    /// `None` disables TLS.
    pub tls: Option<Tls>,
}

pub(crate) fn read(hbase: &mut Section<'_>) -> HBase {
    let mut count = 0;
    let servers = hbase.texts("servers", |text| {
        count += 1;
        parse_server(text)
    });
    if servers.is_some() && count == 0 {
        hbase.reject("servers", r#"expected at least one server, such as "master-1:16000""#, "[]");
    }
    let prefix = hbase.text("prefix", parse_prefix);
    let user = hbase.text("user", parse_user);
    let is_tls = hbase.boolean("tls").unwrap_or(false);
    let tls = tls::read(hbase);
    hbase.require_both(["certificate", "key"]);
    for key in ["ca", "certificate", "key"] {
        if hbase.is_set(key) && !is_tls {
            hbase.contradict(key, "requires store.hbase.tls = true".into());
        }
    }
    HBase {
        servers: servers.unwrap_or_else(|| vec!["127.0.0.1:16000".into()]),
        prefix: prefix.unwrap_or("adtrail".into()),
        user: user.unwrap_or("adtrail".into()),
        tls: is_tls.then_some(tls),
    }
}

fn parse_server(text: &str) -> Result<Box<str>, Problem> {
    let is_server = text.rsplit_once(':').is_some_and(|(host, port)| {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_server {
        Ok(text.into())
    } else {
        Err(r#"expected a host and its RPC port, such as "master-1:16000""#.into())
    }
}

/// Parses the start of HBase table names.
fn parse_prefix(text: &str) -> Result<Box<str>, Problem> {
    const BYTES_MAX: usize = 200;
    let (namespace, name) = text.split_once(':').unwrap_or(("default", text));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts_with_word = name.chars().next().is_some_and(is_word);
    let is_namespace = !namespace.is_empty() && namespace.chars().all(is_word);
    let is_name = name.chars().all(|c| is_word(c) || matches!(c, '-' | '.'));
    if starts_with_word && is_namespace && is_name && text.len() <= BYTES_MAX {
        Ok(text.into())
    } else {
        Err("expected at most 200 characters of a-z, A-Z, 0-9, '_', '-', '.', optionally with a \
             namespace, such as \"ads:adtrail\""
            .into())
    }
}

fn parse_user(text: &str) -> Result<Box<str>, Problem> {
    let is_user = !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control);
    if is_user { Ok(text.into()) } else { Err("expected a name of 1 to 200 bytes".into()) }
}
