//! An endpoint: a preset with the settings of its user, checked, and the requests that it makes.
//!
//! Start with [`Endpoint::prepare`]. `conditions` says which events it gets, `request` writes the request,
//! `private` hides what a response repeats of it.

mod conditions;
pub(crate) mod private;
pub(crate) mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use attribution::outbox::interest::LateCredit;
use attribution::outbox::record::CallbackKind;
use attribution::rules::row::{EventType, InstallType};
use config::{CallbackEndpoint, Callbacks, Secret};
use reqwest::Url;

use crate::address::{AllowedHosts, HostPattern};
use crate::answer::Success;
use crate::credential::Credential;
use crate::crypto::AesKey;
use crate::error::{CallbackError, EndpointError};
use crate::event::CallbackEvent;
use crate::preset::Preset;
use crate::preset::catalogue::Presets;
use crate::sign::Signer;
use crate::template::Template;
use crate::template::fields::Field;
use conditions::Conditions;
use request::Request;

/// Requests to a host in a second, if neither the settings nor the preset say otherwise.
const REQUESTS_PER_SECOND_MAX: u32 = 50;

/// What is sent before [`CallbackKind::ActivationChanged`], which is dropped if nothing was.
const FIRST_KINDS: [CallbackKind; 2] =
    [CallbackKind::ActivationAttributed, CallbackKind::ActivationRejected];

/// A receiver of callbacks.
pub struct Endpoint {
    settings: CallbackEndpoint,
    preset: Arc<Preset>,
    /// The URL of the settings or the preset; `None` if it is always the callback of the touch.
    url: Option<Template>,
    hosts: AllowedHosts,
    conditions: Conditions,
    signer: Signer,
    key: Option<AesKey>,
}

/// Why an event is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The settings of the endpoint exclude it.
    Unwanted(&'static str),
    /// What the network needs is missing or wrong, and will be.
    Impossible(String),
}

impl Endpoint {
    /// Returns the endpoints of the settings.
    ///
    /// # Errors
    /// All endpoints whose preset does not exist, or that lack what it needs.
    pub fn all(settings: &Callbacks, presets: &Presets) -> Result<Vec<Arc<Self>>, CallbackError> {
        let endpoint = |of: &CallbackEndpoint| {
            let preset = presets.find(&of.preset)?;
            Self::new(of.clone(), preset, settings.allow_loopback.clone())
        };
        let (mut endpoints, mut errors) = (Vec::new(), Vec::new());
        for (number, of) in settings.endpoints.iter().enumerate() {
            match endpoint(of) {
                Ok(endpoint) => endpoints.push(Arc::new(endpoint)),
                Err(problem) => {
                    let before = settings.endpoints.iter().take(number);
                    let is_of_file =
                        |other: &&CallbackEndpoint| other.location.file() == of.location.file();
                    let (location, index) =
                        (of.location.clone(), before.filter(is_of_file).count());
                    errors.push(EndpointError { location, index, problem });
                }
            }
        }
        if errors.is_empty() { Ok(endpoints) } else { Err(CallbackError::Endpoints(errors)) }
    }

    fn new(
        settings: CallbackEndpoint,
        preset: Arc<Preset>,
        loopback: Box<[Box<str>]>,
    ) -> Result<Self, String> {
        if let Some(name) = preset.values.iter().find(|name| !has_value(&settings, name)) {
            return Err(format!("values.{name}: missing, expected by the preset"));
        }
        for credential in &preset.credentials {
            if credential.of(&settings.credentials).is_none() {
                let name = credential.name();
                return Err(format!("credentials.{name}: missing, expected by the preset"));
            }
        }
        let kinds = settings.kinds.iter().flatten();
        if let Some(kind) = kinds.copied().find(|kind| !preset.kinds.contains(kind)) {
            return Err(format!("kinds: the preset does not have {:?}", kind.name()));
        }
        let kinds = settings.kinds.as_deref().unwrap_or(&preset.kinds);
        let is_first = |kind: &CallbackKind| FIRST_KINDS.contains(kind);
        if kinds.contains(&CallbackKind::ActivationChanged) && !kinds.iter().any(is_first) {
            let name = CallbackKind::ActivationAttributed.name();
            return Err(format!("kinds: expected {name:?} too, whose credit is then changed"));
        }
        // The ids and tokens of one network are none of another one's business.
        if !preset.needs_own_url && settings.channels.is_empty() {
            return Err("channels: missing, expected the channels of the network".to_owned());
        }
        if preset.needs_own_url && settings.url.is_none() {
            return Err("url: missing, expected by the preset".to_owned());
        }
        let url = match &settings.url {
            Some(text) => Some(own_template(text, &settings)?),
            None => preset.url.clone(),
        };
        let max_age_ms = settings.max_age_ms.min(preset.max_age_ms.unwrap_or(u64::MAX));
        if settings.settle_ms >= max_age_ms {
            let max_age_s = max_age_ms / 1_000;
            return Err(format!(
                "settle: expected less than {max_age_s}s, the maximum age of events"
            ));
        }
        let is_plain_http = preset.is_plain_http;
        let hosts = allowed_hosts(url.as_ref(), &preset.hosts, loopback, is_plain_http)?;
        let wrong_key = "credentials.key: expected 16 bytes in base64";
        let key = match &settings.credentials.key {
            Some(key) => Some(AesKey::from_base64(key.expose()).ok_or(wrong_key)?),
            None => None,
        };
        let secret = settings.credentials.secret.as_ref().map(Secret::expose);
        let previous = settings.credentials.previous_secret.as_ref().map(Secret::expose);
        let signer = preset.signing.with(secret, previous)?;
        let conditions = Conditions::new(settings.conditions.clone());
        let endpoint = Self { settings, preset, url, hosts, conditions, signer, key };
        match endpoint.kinds().iter().any(|kind| endpoint.sends(*kind)) {
            true => Ok(endpoint),
            false => Err("events: expected a name for an event of one of its kinds, because \
                          nothing is sent otherwise"
                .to_owned()),
        }
    }

    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The keys of its apps; empty for all.
    pub fn apps(&self) -> &[Box<str>] {
        &self.settings.apps
    }

    /// The ids of its channels; empty for all.
    pub fn channels(&self) -> &[Box<str>] {
        &self.settings.channels
    }

    pub fn kinds(&self) -> &[CallbackKind] {
        self.settings.kinds.as_deref().unwrap_or(&self.preset.kinds)
    }

    /// Checks whether any event leads to callbacks of this kind.
    pub fn sends(&self, kind: CallbackKind) -> bool {
        let activation = EventType::Activation.name();
        if !kind.is_effect() {
            return self.wants(kind, activation) || self.wants(kind, InstallType::Reinstall.name());
        }
        let has_effects =
            self.event_names().is_none_or(|names| names.iter().any(|name| *name != activation));
        has_effects && self.kinds().contains(&kind)
    }

    /// Checks whether it has a name for the event: `activation`, `reinstall`, or an effect by its name.
    pub fn wants(&self, kind: CallbackKind, name: &str) -> bool {
        self.kinds().contains(&kind) && self.event_type(kind, name).is_some()
    }

    /// Returns which of `activation` and the names of effects it has names for; `None` if it takes all events, with the
    /// names that they have.
    pub fn event_names(&self) -> Option<BTreeSet<&str>> {
        if self.preset.sends_unmapped {
            return None;
        }
        let names = self.settings.events.keys().chain(self.preset.events.keys());
        let is_sent = |name: &&str| {
            let has_name = self.event_type(CallbackKind::Effect, name).is_some();
            has_name && *name != InstallType::Reinstall.name()
        };
        Some(names.map(|name| &**name).filter(is_sent).collect())
    }

    /// How long a decision must stand before it is sent.
    pub fn settle_ms(&self) -> u64 {
        self.settings.settle_ms
    }

    /// The greatest age of an event that is sent, by the settings and by the network.
    pub fn max_age_ms(&self) -> u64 {
        let network_max = self.preset.max_age_ms.unwrap_or(u64::MAX);
        self.settings.max_age_ms.min(network_max)
    }

    pub fn late_credit(&self) -> LateCredit {
        self.settings.late_credit
    }

    /// Checks whether [`CallbackEvent::earlier`] is read.
    pub fn needs_earlier(&self) -> bool {
        self.conditions.need_earlier()
    }

    /// Checks whether a document of the network, or several independent programs, describe the preset.
    pub fn is_documented(&self) -> bool {
        self.preset.is_documented
    }

    /// Says where the preset is from.
    pub fn source(&self) -> &str {
        &self.preset.source
    }

    /// Checks whether a network gets the same events from both endpoints: they have its preset, and an app, a channel
    /// and the name of an event in common.
    pub fn doubles(&self, other: &Self) -> bool {
        let overlap = |one: &[Box<str>], two: &[Box<str>]| {
            one.is_empty() || two.is_empty() || one.iter().any(|name| two.contains(name))
        };
        let (one, two) = (&self.settings, &other.settings);
        let has_common_name = match (self.event_names(), other.event_names()) {
            (Some(names), Some(others)) => !names.is_disjoint(&others),
            _ => true,
        };
        !self.preset.needs_own_url
            && (&self.preset.name, &one.url) == (&other.preset.name, &two.url)
            && overlap(&one.apps, &two.apps)
            && overlap(&one.channels, &two.channels)
            && has_common_name
    }

    /// Checks whether URLs of clicks choose among its hosts.
    pub(crate) fn has_hosts_of_clicks(&self) -> bool {
        self.preset.callback_is_url
    }

    /// Checks whether its requests may go to a host.
    pub(crate) fn may_use(&self, host: &str) -> bool {
        self.hosts.knows(host)
    }

    pub(crate) fn success(&self) -> &Success {
        &self.preset.success
    }

    pub(crate) fn requests_per_second_max(&self) -> NonZeroU32 {
        let set = self.settings.requests_per_second_max.or(self.preset.requests_per_second_max);
        set.or(NonZeroU32::new(REQUESTS_PER_SECOND_MAX)).unwrap_or(NonZeroU32::MIN)
    }

    pub(crate) fn in_flight_max(&self) -> u32 {
        self.settings.in_flight_max
    }

    /// Returns the request of an attempt at this time.
    pub(crate) fn prepare(&self, event: &CallbackEvent, now_ms: i64) -> Result<Request, NotSent> {
        let event_type = self.event_type(event.kind, name_of(event));
        let Some(event_type) = event_type.filter(|_| self.kinds().contains(&event.kind)) else {
            return Err(NotSent::Unwanted("the endpoint has no name for the event"));
        };
        if !self.serves(event) {
            return Err(NotSent::Unwanted("the endpoint is not of the app or the channel"));
        }
        self.conditions.check(event)?;
        request::write(self, event, event_type, now_ms)
    }

    /// Checks app and channel. Settings may have changed since the callback was made.
    fn serves(&self, event: &CallbackEvent) -> bool {
        let is_in = |list: &[Box<str>], name: &str| {
            list.is_empty() || list.iter().any(|known| **known == *name)
        };
        let previous =
            event.previous.iter().filter(|_| event.kind == CallbackKind::ActivationChanged);
        let mut credits = previous.chain([&event.credit]);
        is_in(&self.settings.apps, &event.app)
            && credits.any(|credit| is_in(&self.settings.channels, &credit.channel))
    }

    /// Returns what the endpoint calls an event; `None` if it is not sent.
    fn event_type<'n>(&'n self, kind: CallbackKind, name: &'n str) -> Option<&'n str> {
        let mapped = self.settings.events.get(name).or_else(|| self.preset.events.get(name));
        // The kind of a webhook says it; only effects have names of their own.
        let has_own_name = kind.is_effect() || !kind.is_webhook();
        let own_name = if has_own_name { name } else { kind.name() };
        let unmapped = self.preset.sends_unmapped.then_some(own_name);
        mapped.map(|mapped| &**mapped).or(unmapped).filter(|mapped| !mapped.is_empty())
    }
}

/// Returns the name by which settings and presets have the event. Networks do not count a reinstall as another install.
fn name_of(event: &CallbackEvent) -> &str {
    let reinstall = InstallType::Reinstall.name();
    let is_activation =
        matches!(event.kind, CallbackKind::Activation | CallbackKind::ActivationAttributed);
    if is_activation && *event.install_type == *reinstall { reinstall } else { &event.name }
}

/// Parses the URL of the settings, which must have what it names. It can have a token, which no message may show.
fn own_template(text: &str, settings: &CallbackEndpoint) -> Result<Template, String> {
    let parsed = Template::parse(text);
    let hide = |problem: String| problem.replace(&format!("{text:?}"), "(not shown)");
    let template = parsed.map_err(|problem| format!("url: {}", hide(problem)))?;
    for field in template.needed() {
        let missing = match field {
            Field::Value(name) if !has_value(settings, name) => format!("values.{name}"),
            Field::Credential(name) if !has_credential(settings, name) => {
                format!("credentials.{name}")
            }
            _ => continue,
        };
        return Err(format!("{missing}: missing, expected by url"));
    }
    if template.needs_key() && settings.credentials.key.is_none() {
        return Err("credentials.key: missing, expected by url".to_owned());
    }
    Ok(template)
}

/// Checks a value that each request needs; an empty one is none.
fn has_value(settings: &CallbackEndpoint, name: &str) -> bool {
    settings.values.get(name).is_some_and(|value| !value.is_empty())
}

fn has_credential(settings: &CallbackEndpoint, name: &str) -> bool {
    Credential::from_name(name).is_some_and(|known| known.of(&settings.credentials).is_some())
}

/// Returns where requests may go. The host of a URL must not depend on an event.
fn allowed_hosts(
    url: Option<&Template>,
    patterns: &[HostPattern],
    loopback: Box<[Box<str>]>,
    is_plain_http: bool,
) -> Result<AllowedHosts, String> {
    let mut hosts =
        AllowedHosts { patterns: patterns.to_vec(), own: None, loopback, is_plain_http };
    let Some(url) = url else { return Ok(hosts) };
    let start = url.literal_start();
    let expected = "url: expected a scheme, a host and a path before the first field";
    let (_, after_scheme) = start.split_once("://").ok_or(expected)?;
    if !after_scheme.contains('/') {
        return Err(expected.to_owned());
    }
    let parsed = Url::parse(start).map_err(|_| "url: expected a URL")?;
    hosts.own = parsed.host_str().map(Into::into);
    hosts.check(&parsed).map_err(|problem| format!("url: {problem}"))?;
    Ok(hosts)
}
