//! Parses and checks the file of a preset.

use std::collections::BTreeMap;

use attribution::outbox::record::CallbackKind;
use reqwest::Method;
use reqwest::header::HeaderName;
use serde::Deserialize;

use super::{Node, Preset};
use crate::address::HostPattern;
use crate::answer::Success;
use crate::credential::Credential;
use crate::sign::Signing;
use crate::template::Template;
use crate::template::fields::Field;

/// Headers that the HTTP client writes.
const RESERVED_HEADERS: [&str; 4] = ["connection", "content-length", "host", "transfer-encoding"];

/// Maximum depth of a body.
const DEPTH_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    documented: bool,
    source: String,
    #[serde(default = "get")]
    method: String,
    url: Option<String>,
    #[serde(default)]
    own_url: bool,
    #[serde(default)]
    callback_is_url: bool,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    paths: Vec<Box<str>>,
    #[serde(default)]
    plain_http: bool,
    #[serde(default = "network_kinds")]
    kinds: Vec<String>,
    #[serde(default)]
    events: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    send_unmapped: bool,
    #[serde(default)]
    replace: Vec<(String, String)>,
    #[serde(default)]
    query: Vec<(String, String)>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<toml::Table>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    values: Vec<Box<str>>,
    #[serde(default)]
    credentials: Vec<String>,
    #[serde(default = "unsigned")]
    sign: String,
    success: Option<RawSuccess>,
    max_age_s: Option<u32>,
    requests_per_second_max: Option<std::num::NonZeroU32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuccess {
    field: Box<str>,
    values: Vec<Box<str>>,
    #[serde(default)]
    refused: Vec<Box<str>>,
}

fn get() -> String {
    "GET".to_owned()
}

fn unsigned() -> String {
    "none".to_owned()
}

fn network_kinds() -> Vec<String> {
    [CallbackKind::Activation, CallbackKind::Effect].map(|kind| kind.name().to_owned()).into()
}

/// # Errors
/// What is wrong with the file.
pub(super) fn parse(name: &str, text: &str) -> Result<Preset, String> {
    let raw: Raw = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let url = raw.url.as_deref().map(|url| labelled("url", Template::parse(url)));
    let preset = Preset {
        name: name.into(),
        is_documented: raw.documented,
        source: raw.source.into(),
        method: method(&raw.method)?,
        url: url.transpose()?,
        needs_own_url: raw.own_url,
        callback_is_url: raw.callback_is_url,
        hosts: raw.hosts.iter().map(|host| HostPattern::parse(host)).collect::<Result<_, _>>()?,
        paths: raw.paths,
        is_plain_http: raw.plain_http,
        kinds: names("kinds", &raw.kinds, CallbackKind::from_name)?,
        events: raw.events,
        sends_unmapped: raw.send_unmapped,
        replace: templates("replace", raw.replace)?,
        query: templates("query", raw.query)?,
        headers: templates("headers", raw.headers)?,
        body: raw.body.map(|body| object(body, DEPTH_MAX)).transpose()?,
        required: required(&raw.required)?,
        values: raw.values,
        credentials: names("credentials", &raw.credentials, Credential::from_name)?,
        signing: Signing::from_name(&raw.sign).ok_or_else(|| unknown("sign", &raw.sign))?,
        success: raw.success.map_or(Success::AnyBody, |success| Success::Field {
            path: success.field,
            values: success.values,
            refused: success.refused,
        }),
        max_age_ms: raw.max_age_s.map(|seconds| u64::from(seconds) * 1_000),
        requests_per_second_max: raw.requests_per_second_max,
    };
    check(&preset)?;
    Ok(preset)
}

fn check(preset: &Preset) -> Result<(), String> {
    if preset.kinds.is_empty() {
        return Err("kinds: expected at least one".to_owned());
    }
    if preset.url.is_none() && !preset.callback_is_url && !preset.needs_own_url {
        let problem = "url: missing, expected unless callback_is_url = true or own_url = true";
        return Err(problem.to_owned());
    }
    if preset.callback_is_url == preset.hosts.is_empty() {
        return Err("hosts: expected with callback_is_url = true, and only then".to_owned());
    }
    if !preset.replace.is_empty() && !preset.callback_is_url {
        return Err("replace: expected only with callback_is_url = true".to_owned());
    }
    if !preset.paths.is_empty() && !preset.callback_is_url {
        return Err("paths: expected only with callback_is_url = true".to_owned());
    }
    if let Some(wrong) = preset.paths.iter().find(|path| !path.starts_with('/')) {
        return Err(format!("paths: expected a path such as \"/v1/track\": {wrong:?}"));
    }
    let templates = preset.templates();
    let mut fields = templates.iter().flat_map(|template| template.fields());
    let sends_credential = fields.any(|field| matches!(field, Field::Credential(_)));
    if sends_credential && preset.callback_is_url && preset.paths.is_empty() {
        return Err("paths: expected with callback_is_url and a text with a credential".to_owned());
    }
    if matches!(&preset.success, Success::Field { values, .. } if values.is_empty()) {
        return Err("success.values: expected the texts of success".to_owned());
    }
    check_headers(preset)?;
    let needed = preset.signing.credential();
    if let Some(needed) = needed.filter(|needed| !preset.credentials.contains(needed)) {
        return Err(format!("credentials: expected {:?}, by sign", needed.name()));
    }
    let uses_key = templates.iter().any(|template| template.needs_key());
    if uses_key && !preset.credentials.contains(&Credential::Key) {
        return Err("credentials: expected \"key\", by aes128_ecb".to_owned());
    }
    for field in templates.into_iter().flat_map(Template::fields) {
        if let Field::Credential(name) = field
            && !preset.credentials.iter().any(|known| known.name() == *name)
        {
            return Err(format!("credentials: expected {name:?}, because a template has it"));
        }
    }
    Ok(())
}

fn check_headers(preset: &Preset) -> Result<(), String> {
    let is_wrong = |name: &str| {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        parsed.map_or(true, |name| RESERVED_HEADERS.contains(&name.as_str()))
    };
    match preset.headers.iter().find(|(name, _)| is_wrong(name)) {
        Some((name, _)) => Err(format!("headers: expected the name of another header: {name:?}")),
        None => Ok(()),
    }
}

fn method(text: &str) -> Result<Method, String> {
    match text {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        _ => Err(format!("method: expected \"GET\" or \"POST\": {text:?}")),
    }
}

fn names<T>(
    key: &str,
    texts: &[String],
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    texts.iter().map(|text| from_name(text).ok_or_else(|| unknown(key, text))).collect()
}

fn unknown(key: &str, name: &str) -> String {
    format!("{key}: unknown name, docs/callbacks.md lists them: {name:?}")
}

fn labelled<T>(key: &str, outcome: Result<T, String>) -> Result<T, String> {
    outcome.map_err(|problem| format!("{key}: {problem}"))
}

fn templates(key: &str, pairs: Vec<(String, String)>) -> Result<Vec<(Box<str>, Template)>, String> {
    let parse = |(name, text): (String, String)| {
        labelled(key, Template::parse(&text)).map(|template| (name.into(), template))
    };
    pairs.into_iter().map(parse).collect()
}

/// Parses texts that are between braces elsewhere.
fn required(texts: &[String]) -> Result<Vec<Template>, String> {
    let parse = |text: &String| labelled("required", Template::parse(&format!("{{{text}}}")));
    texts.iter().map(parse).collect()
}

fn object(table: toml::Table, depth: usize) -> Result<Node, String> {
    let entries = table.into_iter();
    let nodes: Result<Vec<(Box<str>, Node)>, String> =
        entries.map(|(key, value)| Ok((key.into(), node(value, depth)?))).collect();
    nodes.map(Node::Object)
}

fn node(value: toml::Value, depth: usize) -> Result<Node, String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("body: expected at most {DEPTH_MAX} levels"));
    };
    match value {
        toml::Value::String(text) => labelled("body", Template::parse(&text)).map(Node::Text),
        toml::Value::Integer(number) => Ok(Node::Literal(number.into())),
        toml::Value::Boolean(truth) => Ok(Node::Literal(truth.into())),
        toml::Value::Array(items) => {
            let nodes: Result<Vec<Node>, String> =
                items.into_iter().map(|item| node(item, depth)).collect();
            nodes.map(Node::List)
        }
        toml::Value::Table(table) => object(table, depth),
        toml::Value::Float(_) | toml::Value::Datetime(_) => {
            Err("body: expected strings, integers, booleans, lists and tables".to_owned())
        }
    }
}
