//! Presets: how each network wants to be notified, as data.
//!
//! Start with `raw`, the form of the files in `callback/presets/`, which docs/callbacks.md describes; `catalogue` loads
//! them.

pub(crate) mod catalogue;
mod raw;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use attribution::outbox::record::CallbackKind;
use reqwest::Method;

use crate::address::HostPattern;
use crate::answer::Success;
use crate::credential::Credential;
use crate::sign::Signing;
use crate::template::Template;

/// A parsed file.
#[derive(Debug, Clone)]
pub(crate) struct Preset {
    pub name: Box<str>,
    /// A document of the network, or several independent programs, say so.
    pub is_documented: bool,
    pub source: Box<str>,
    pub method: Method,
    /// `None` if the URL is always the callback of the touch, or that of the settings.
    pub url: Option<Template>,
    /// The settings must have the URL.
    pub needs_own_url: bool,
    /// The callback of a touch may be the URL.
    pub callback_is_url: bool,
    /// The hosts of such URLs.
    pub hosts: Vec<HostPattern>,
    /// Their paths; empty for all. A token must not go with a request of another kind, which anybody could ask for.
    pub paths: Vec<Box<str>>,
    /// The network has no TLS.
    pub is_plain_http: bool,
    pub kinds: Vec<CallbackKind>,
    /// Names of events, and what the network calls each.
    pub events: BTreeMap<Box<str>, Box<str>>,
    /// Other events are sent with the names that they have.
    pub sends_unmapped: bool,
    /// Texts that are replaced in the callback's URL.
    pub replace: Vec<(Box<str>, Template)>,
    pub query: Vec<(Box<str>, Template)>,
    pub headers: Vec<(Box<str>, Template)>,
    pub body: Option<Node>,
    /// A callback without one of these is not sent.
    pub required: Vec<Template>,
    /// The names of values that the settings must have.
    pub values: Vec<Box<str>>,
    pub credentials: Vec<Credential>,
    pub signing: Signing,
    pub success: Success,
    /// The greatest age of an event that the network takes.
    pub max_age_ms: Option<u64>,
    pub requests_per_second_max: Option<NonZeroU32>,
}

/// A JSON document with templates for its texts.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Text(Template),
    /// A number or a boolean.
    Literal(serde_json::Value),
    List(Vec<Node>),
    Object(Vec<(Box<str>, Node)>),
}

impl Preset {
    /// Returns all templates.
    pub fn templates(&self) -> Vec<&Template> {
        let mut found: Vec<&Template> = self.url.iter().chain(&self.required).collect();
        let pairs = [&self.replace, &self.query, &self.headers];
        found.extend(pairs.into_iter().flatten().map(|(_, template)| template));
        if let Some(body) = &self.body {
            body.collect(&mut found);
        }
        found
    }
}

impl Node {
    fn collect<'n>(&'n self, found: &mut Vec<&'n Template>) {
        match self {
            Self::Text(template) => found.push(template),
            Self::Literal(_) => {}
            Self::List(nodes) => nodes.iter().for_each(|node| node.collect(found)),
            Self::Object(nodes) => nodes.iter().for_each(|(_, node)| node.collect(found)),
        }
    }
}
