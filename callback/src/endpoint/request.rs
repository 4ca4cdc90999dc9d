//! Writes the request of one attempt, and the form of it that persons may see.

use std::borrow::Cow;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use super::{Endpoint, NotSent};
use crate::event::CallbackEvent;
use crate::preset::Node;
use crate::sign::Draft;
use crate::template::fields::{HIDDEN, Values};
use crate::template::{Template, url_encode};

/// Maximum length of a URL.
const URL_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a text that is shown.
const SHOWN_CHARS_MAX: usize = 2_048;

/// What is sent.
pub(crate) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The host of the URL.
    pub host: Box<str>,
    pub shown: Shown,
    /// What proves its sender.
    pub signatures: Vec<String>,
}

/// A request without ids and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shown {
    pub method: Box<str>,
    pub url: Box<str>,
    pub body: Box<str>,
}

pub(super) fn write(
    endpoint: &Endpoint,
    event: &CallbackEvent,
    event_type: &str,
    now_ms: i64,
) -> Result<Request, NotSent> {
    let values = values(endpoint, event, event_type, now_ms);
    let preset = &endpoint.preset;
    if preset.required.iter().any(|needed| needed.render(&values).is_none()) {
        return Err(NotSent::Impossible("a field that the network needs is not known".to_owned()));
    }
    let mut draft = draft(endpoint, &values)?;
    endpoint.signer.sign(&mut draft, &event.id, now_ms);
    let shown = shown(endpoint, &Values { hidden: true, ..values });
    let url = checked_url(endpoint, &draft.url)?;
    let host = endpoint.hosts.check(&url).map_err(NotSent::Impossible)?.into();
    let headers = headers(draft.headers, !draft.body.is_empty())?;
    let (body, signatures) = (draft.body, draft.signatures);
    Ok(Request { method: preset.method.clone(), url, headers, body, host, shown, signatures })
}

pub(super) fn values<'a>(
    endpoint: &'a Endpoint,
    event: &'a CallbackEvent,
    event_type: &'a str,
    now_ms: i64,
) -> Values<'a> {
    Values {
        event,
        event_type,
        now_ms,
        settings: &endpoint.settings.values,
        credentials: &endpoint.settings.credentials,
        key: endpoint.key.as_ref(),
        hidden: false,
    }
}

/// Returns the request before it is signed.
fn draft(endpoint: &Endpoint, values: &Values<'_>) -> Result<Draft, NotSent> {
    let base = checked_url(endpoint, &base_url(endpoint, values)?)?;
    let preset = &endpoint.preset;
    if !has_known_path(endpoint, values, &base) {
        return Err(NotSent::Impossible("the path is not one of the preset's".to_owned()));
    }
    let url = with_query(base, rendered(&preset.query, values));
    let body = preset.body.as_ref().and_then(|body| json(body, values));
    Ok(Draft {
        url,
        headers: rendered(&preset.headers, values),
        body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        signatures: Vec::new(),
    })
}

fn rendered(pairs: &[(Box<str>, Template)], values: &Values<'_>) -> Vec<(Box<str>, String)> {
    let pairs = pairs.iter().map(|(name, template)| Some((name.clone(), template.render(values)?)));
    pairs.flatten().collect()
}

/// Parses a URL. One without TLS from a click becomes one with TLS, unless the network has none.
fn checked_url(endpoint: &Endpoint, text: &str) -> Result<Url, NotSent> {
    let wrong = |problem: &str| NotSent::Impossible(problem.to_owned());
    if text.len() > URL_BYTES_MAX {
        return Err(wrong("the URL is too long"));
    }
    let mut url = Url::parse(text).map_err(|_| wrong("the URL is not one"))?;
    url.set_fragment(None);
    let host = url.host_str().unwrap_or_default();
    let may_be_plain = endpoint.preset.is_plain_http || endpoint.hosts.is_loopback(host);
    if url.scheme() == "http" && !may_be_plain && url.port().is_none() {
        url.set_scheme("https").map_err(|()| wrong("the URL is not one"))?;
    }
    Ok(url)
}

/// Checks the path of a URL that comes from a click. Servers of tests have their own ones.
fn has_known_path(endpoint: &Endpoint, values: &Values<'_>, url: &Url) -> bool {
    let paths = &endpoint.preset.paths;
    paths.is_empty()
        || paths.iter().any(|path| **path == *url.path())
        || endpoint.hosts.is_loopback(url.host_str().unwrap_or_default())
        || callback_url(&values.event.credit.callback).is_none()
}

/// Returns the URL without the parameters of the preset.
fn base_url(endpoint: &Endpoint, values: &Values<'_>) -> Result<String, NotSent> {
    if endpoint.preset.callback_is_url
        && let Some(callback) = callback_url(&values.event.credit.callback)
    {
        return Ok(replaced(endpoint, values, callback.into_owned()));
    }
    let missing = || NotSent::Impossible("the touch has no callback URL".to_owned());
    let template = endpoint.url.as_ref().ok_or_else(missing)?;
    let rendered = template.render(values);
    rendered.ok_or_else(|| NotSent::Impossible("a field of the URL is not known".to_owned()))
}

/// Returns the callback if it is a URL, which may be percent-encoded once.
pub(super) fn callback_url(callback: &str) -> Option<Cow<'_, str>> {
    let starts_with = |scheme: &str| {
        callback.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if starts_with("https://") || starts_with("http://") {
        return Some(callback.into());
    }
    let is_encoded = starts_with("https%3A") || starts_with("http%3A");
    is_encoded.then(|| percent_decode_str(callback).decode_utf8().ok()).flatten()
}

/// Fills in what the network has left open in its URL, as it is or percent-encoded.
fn replaced(endpoint: &Endpoint, values: &Values<'_>, mut url: String) -> String {
    for (text, template) in &endpoint.preset.replace {
        let value = url_encode(&template.render(values).unwrap_or_default());
        let encoded = || utf8_percent_encode(text, NON_ALPHANUMERIC);
        // Its digits may be in lower case.
        let lower = encoded().map(|part| match part.starts_with('%') {
            true => part.to_lowercase(),
            false => part.to_owned(),
        });
        let lower = lower.collect::<String>();
        url = url.replace(&**text, &value);
        url = url.replace(&encoded().to_string(), &value).replace(&lower, &value);
    }
    url
}

/// Adds parameters; they replace those of the same names. The others keep their notation, which networks sign.
fn with_query(mut url: Url, pairs: Vec<(Box<str>, String)>) -> String {
    let query = url.query().unwrap_or_default().to_owned();
    let is_kept = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !pairs.iter().any(|(added, _)| **added == *name)
    };
    let mut parts: Vec<String> = query.split('&').filter(is_kept).map(str::to_owned).collect();
    let encoded = pairs.iter().map(|(name, value)| format!("{name}={}", url_encode(value)));
    parts.extend(encoded);
    let query = parts.join("&");
    url.set_query((!query.is_empty()).then_some(&*query));
    url.into()
}

/// Returns the body; without what has no value, and `None` if nothing has.
fn json(node: &Node, values: &Values<'_>) -> Option<Value> {
    match node {
        Node::Literal(value) => Some(value.clone()),
        Node::Text(template) => {
            let text = template.render(values)?;
            if template.is_json() && text != HIDDEN {
                return serde_json::from_str(&text).ok();
            }
            Some(text.into())
        }
        Node::List(nodes) => {
            let items: Vec<Value> = nodes.iter().filter_map(|node| json(node, values)).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Node::Object(nodes) => {
            let entries =
                nodes.iter().map(|(name, node)| Some((name.to_string(), json(node, values)?)));
            let entries: Map<String, Value> = entries.flatten().collect();
            (!entries.is_empty()).then_some(Value::Object(entries))
        }
    }
}

fn headers(pairs: Vec<(Box<str>, String)>, has_body: bool) -> Result<HeaderMap, NotSent> {
    let wrong = |name: &str| NotSent::Impossible(format!("the header {name} is not valid"));
    let mut headers = HeaderMap::new();
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in pairs {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(&name))?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong(&name))?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Returns the request with [`HIDDEN`] in place of ids and tokens, and without signature. Of a URL that is the callback
/// of the touch, the host is shown, and a path that the preset names; of one of the settings, only the host.
fn shown(endpoint: &Endpoint, values: &Values<'_>) -> Shown {
    let method = endpoint.preset.method.as_str().into();
    let callback = callback_url(&values.event.credit.callback);
    let base = match callback.filter(|_| endpoint.preset.callback_is_url) {
        Some(callback) => Url::parse(&callback).map_or(HIDDEN.to_owned(), |url| {
            let is_known = endpoint.preset.paths.iter().any(|known| **known == *url.path());
            let path = if is_known { url.path() } else { "/hidden" };
            format!("{}{path}?{HIDDEN}", url.origin().ascii_serialization())
        }),
        None => match &endpoint.url {
            Some(_) if endpoint.settings.url.is_some() => {
                let origin = own_url(endpoint).map(|url| url.origin().ascii_serialization());
                format!("{}/{HIDDEN}", origin.unwrap_or_default())
            }
            Some(template) => template.render(values).unwrap_or_default(),
            None => String::new(),
        },
    };
    let pairs = rendered(&endpoint.preset.query, values);
    let url = Url::parse(&base).map_or(base, |base| with_query(base, pairs));
    let body = endpoint.preset.body.as_ref().and_then(|body| json(body, values));
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    Shown { method, url: shortened(&url), body: shortened(&body) }
}

/// Returns the URL of the settings up to its first field. Its path or its query can have a token of the receiver.
fn own_url(endpoint: &Endpoint) -> Option<Url> {
    endpoint.settings.url.as_ref()?;
    Url::parse(endpoint.url.as_ref()?.literal_start()).ok()
}

pub(super) fn shortened(text: &str) -> Box<str> {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
