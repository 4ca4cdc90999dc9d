//! Reads the endpoints that get callbacks, and how each is served.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use attribution::outbox::MAX_AGE_MS_MAX;
use attribution::outbox::interest::LateCredit;
use attribution::outbox::record::CallbackKind;
use attribution::rules::policy::{DAY_MS, Policy};

use super::credentials::{self, CallbackCredentials};
use crate::nearest;
use crate::parse::error::{Location, Problem};
use crate::parse::section::Section;
use crate::parse::tree::{Node, Table, Value};
use crate::parse::{address, duration};

const NAME_CHARS_MAX: usize = 40;
/// The least value of `callbacks.max_age`.
const MAX_AGE_MIN_MS: u64 = 60_000;
/// The greatest value of `settle`: endpoints refuse what is late.
const SETTLE_MAX_MS: u64 = DAY_MS;
const URL_BYTES_MAX: usize = 2_048;

/// The table `[callbacks]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Callbacks {
    /// A directory with presets, which replace the built-in ones of the same names.
    pub presets: Option<PathBuf>,
    /// Host names that may have loopback addresses, any port and no TLS: for tests and the demo.
    pub allow_loopback: Box<[Box<str>]>,
    pub endpoints: Vec<CallbackEndpoint>,
}

impl Callbacks {
    /// Compares values only: the locations of endpoints change with every line before them.
    pub fn has_values_of(&self, other: &Self) -> bool {
        let values = |callbacks: &Self| {
            let mut values = callbacks.clone();
            values.endpoints.iter_mut().for_each(|endpoint| endpoint.location = Location::Flag);
            values
        };
        values(self) == values(other)
    }
}

/// An entry of `[[callbacks.endpoint]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackEndpoint {
    /// That of its table, for errors that are found later.
    pub location: Location,
    pub name: Box<str>,
    pub preset: Box<str>,
    /// Replaces the URL of the preset.
    pub url: Option<Box<str>>,
    /// The keys of its apps; empty for all.
    pub apps: Box<[Box<str>]>,
    /// The ids of its channels; empty for all.
    pub channels: Box<[Box<str>]>,
    /// What it is notified of; `None` leaves it to the preset.
    pub kinds: Option<Box<[CallbackKind]>>,
    /// How long a decision must stand before it is sent.
    pub settle_ms: u64,
    /// The greatest age of an event that is sent.
    pub max_age_ms: u64,
    pub late_credit: LateCredit,
    pub conditions: CallbackConditions,
    /// `None` leaves it to the preset.
    pub requests_per_second_max: Option<NonZeroU32>,
    pub in_flight_max: u32,
    /// Names of events and what the endpoint calls each; an empty name stands for events that are not sent.
    pub events: BTreeMap<Box<str>, Box<str>>,
    /// What templates name `values.NAME`.
    pub values: BTreeMap<Box<str>, Box<str>>,
    pub credentials: CallbackCredentials,
}

/// Which events of those that an endpoint wants it gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallbackConditions {
    /// The least revenue of an effect: a decimal without a sign.
    pub revenue_min: Option<Box<str>>,
    /// Only the first effect of its name of each activation.
    pub first_only: bool,
    /// Only the first effect of its name in each window of this length, counted from the activation.
    pub once_per_ms: Option<u64>,
    /// The share of activations, in percent, whose events are sent; `None` for all.
    pub share_percent: Option<u32>,
}

/// What endpoints refer to.
pub(crate) struct Known<'a> {
    pub policy: &'a Policy,
    /// False if an invalid app was left out. Unknown ones are not reported then.
    pub has_all_apps: bool,
    pub channels: &'a [Box<str>],
    /// Comma-separated.
    pub brokers: &'a str,
}

/// What applies to endpoints that do not say otherwise.
struct Defaults {
    settle_ms: u64,
    max_age_ms: u64,
    late_credit: LateCredit,
}

pub(crate) fn read(callbacks: &mut Section<'_>, known: &Known<'_>) -> Callbacks {
    let defaults = Defaults {
        settle_ms: callbacks.text("settle", parse_settle).unwrap_or(60_000),
        max_age_ms: callbacks.text("max_age", parse_max_age).unwrap_or(DAY_MS),
        late_credit: callbacks
            .text("late_credit", parse_late_credit)
            .unwrap_or(LateCredit::Withhold),
    };
    let presets = callbacks.path("presets");
    let allow_loopback = callbacks.texts("allow_loopback", address::parse_host).unwrap_or_default();
    if !allow_loopback.is_empty() && !known.brokers.split(',').all(is_loopback) {
        let problem = "is for tests and the demo: requires kafka.brokers on loopback addresses";
        callbacks.contradict("allow_loopback", problem.to_owned());
    }
    let mut taken = BTreeMap::new();
    let (endpoints, _) = callbacks.tables("endpoint", |endpoint| {
        let name = endpoint.text("name", parse_name);
        endpoint.require("name", "the endpoint's name, by which callbacks are listed");
        name.iter().for_each(|name| endpoint.require_unique("name", name, &mut taken));
        read_endpoint(endpoint, name, &defaults, known)
    });
    Callbacks { presets, allow_loopback: allow_loopback.into(), endpoints }
}

fn read_endpoint(
    endpoint: &mut Section<'_>,
    name: Option<Box<str>>,
    defaults: &Defaults,
    known: &Known<'_>,
) -> Option<CallbackEndpoint> {
    let preset = endpoint.text("preset", parse_preset);
    let url = endpoint.text("url", parse_url);
    let apps = endpoint.limits("apps", |key| known.app(key)).unwrap_or_default();
    let channels = endpoint.limits("channels", |id| known.channel(id)).unwrap_or_default();
    let kinds = endpoint.limits("kinds", parse_kind);
    let settle_ms = endpoint.text("settle", parse_settle);
    let max_age_ms = endpoint.text("max_age", parse_max_age);
    let late_credit = endpoint.text("late_credit", parse_late_credit);
    let conditions = read_conditions(endpoint);
    let rate = endpoint.integer("requests_per_second_max", 1..=10_000).and_then(NonZeroU32::new);
    let in_flight_max = endpoint.integer("in_flight_max", 1..=256).unwrap_or(16);
    let events = endpoint.table("events", read_texts);
    let values = endpoint.table("values", read_texts);
    let credentials = endpoint.table("credentials", credentials::read);
    endpoint.require("preset", "the name of a preset, such as \"webhook\"");
    Some(CallbackEndpoint {
        location: endpoint.location().clone(),
        name: name?,
        preset: preset?,
        url,
        apps: apps.into(),
        channels: channels.into(),
        kinds: kinds.map(Into::into),
        settle_ms: settle_ms.unwrap_or(defaults.settle_ms),
        max_age_ms: max_age_ms.unwrap_or(defaults.max_age_ms),
        late_credit: late_credit.unwrap_or(defaults.late_credit),
        conditions,
        requests_per_second_max: rate,
        in_flight_max,
        events,
        values,
        credentials,
    })
}

fn read_conditions(endpoint: &mut Section<'_>) -> CallbackConditions {
    let conditions = CallbackConditions {
        revenue_min: endpoint.text("revenue_min", parse_revenue),
        first_only: endpoint.boolean("first_only").unwrap_or(false),
        once_per_ms: endpoint.text("once_per", parse_once_per),
        share_percent: endpoint.integer("share_percent", 1..=100).filter(|share| *share < 100),
    };
    if conditions.first_only && conditions.once_per_ms.is_some() {
        let problem = "has no effect with first_only: set one of them".to_owned();
        endpoint.contradict("once_per", problem);
    }
    conditions
}

/// Reads a table of texts with any names.
fn read_texts(table: &mut Section<'_>) -> BTreeMap<Box<str>, Box<str>> {
    let entries: Table = table.take_all();
    let mut texts = BTreeMap::new();
    for (name, Node { location, value }) in entries {
        match value {
            Value::Text(text) => drop(texts.insert(name.into(), text.into())),
            Value::Integer(number) => drop(texts.insert(name.into(), number.to_string().into())),
            other => {
                let problem = "expected a string or an integer".into();
                table.error(table.dotted(&name), location, problem, other.summary());
            }
        }
    }
    texts
}

impl Known<'_> {
    fn app(&self, key: &str) -> Result<Box<str>, Problem> {
        if self.policy.app_by_key(key).is_some() || !self.has_all_apps {
            return Ok(key.into());
        }
        let known = self.policy.apps().map(|app| &*app.key);
        Err(nearest::unknown_name("the key of one of the [[apps]]", key, known))
    }

    fn channel(&self, id: &str) -> Result<Box<str>, Problem> {
        if self.channels.iter().any(|known| &**known == id) {
            return Ok(id.into());
        }
        let known = self.channels.iter().map(|known| &**known);
        Err(nearest::unknown_name("the id of one of the [[channels]]", id, known))
    }
}

/// Checks whether a broker is `localhost` or a loopback address.
fn is_loopback(broker: &str) -> bool {
    let address = broker.trim();
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    let host = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => address,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn parse_name(text: &str) -> Result<Box<str>, Problem> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
    };
    if (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err("expected a name of 1 to 40 characters of a-z, 0-9, '_' and '-'".into())
    }
}

/// Parses the name of a preset, which is part of a file's name.
fn parse_preset(text: &str) -> Result<Box<str>, Problem> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err("expected the name of a preset, 1 to 40 characters of a-z, 0-9 and '_'".into())
    }
}

/// Checks the form only: the URL is a template, which the crate `callback` parses.
fn parse_url(text: &str) -> Result<Box<str>, Problem> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if is_web && is_plain && text.len() <= URL_BYTES_MAX {
        Ok(text.into())
    } else {
        let problem = "expected an https or http URL of at most 2048 characters, without fragment";
        Err(problem.into())
    }
}

fn parse_kind(text: &str) -> Result<CallbackKind, Problem> {
    CallbackKind::from_name(text).ok_or_else(|| {
        let names = CallbackKind::ALL.map(|kind| format!("{:?}", kind.name()));
        format!("expected one of {}", names.join(", ")).into()
    })
}

fn parse_late_credit(text: &str) -> Result<LateCredit, Problem> {
    LateCredit::from_name(text).ok_or_else(|| r#"expected "withhold" or "send""#.into())
}

fn parse_settle(text: &str) -> Result<u64, Problem> {
    let ms = duration::parse_ms(text)?;
    if ms <= SETTLE_MAX_MS { Ok(ms) } else { Err(r#"expected at most "1d""#.into()) }
}

fn parse_max_age(text: &str) -> Result<u64, Problem> {
    let ms = duration::parse_ms(text)?;
    if (MAX_AGE_MIN_MS..=MAX_AGE_MS_MAX).contains(&ms) {
        Ok(ms)
    } else {
        Err(r#"expected a duration from "1m" to "5d""#.into())
    }
}

fn parse_once_per(text: &str) -> Result<u64, Problem> {
    match duration::parse_ms(text)? {
        0 => Err(r#"expected a duration of at least "1ms""#.into()),
        ms => Ok(ms),
    }
}

fn parse_revenue(text: &str) -> Result<Box<str>, Problem> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| {
        (1..=18).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if digits(whole) && digits(fraction) {
        Ok(text.into())
    } else {
        Err(r#"expected a decimal without a sign, such as "6.00""#.into())
    }
}
