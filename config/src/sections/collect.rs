//! Reads the settings of the collector.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use attribution::rules::policy::IpRange;
use url::Url;

use super::formats::{Format, Formats};
use crate::parse::error::Problem;
use crate::parse::section::Section;
use crate::parse::{address, duration, size};

/// Allowed values of `collect.body_bytes_max`.
const BODY_BYTES_MIN: u64 = 1 << 10;
const BODY_BYTES_MAX: u64 = 16 << 20;
/// Allowed values of `collect.acknowledgement_timeout`.
const TIMEOUT_MIN_MS: u64 = 100;
const TIMEOUT_MAX_MS: u64 = 60_000;

/// Allowed values of `collect.spool_bytes_max`.
const SPOOL_BYTES_MIN: u64 = 16 << 20;
const SPOOL_BYTES_MAX: u64 = 64 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collect {
    /// Address of the collector's listener.
    pub listen: SocketAddr,
    /// Maximum number of connections of one client address.
    pub connections_per_client_max: usize,
    /// Maximum number of requests of one client address in a second.
    pub requests_per_address_max: Option<NonZeroU32>,
    /// Maximum number of events of one app in a second.
    pub events_per_app_max: Option<NonZeroU32>,
    /// Maximum length of a request body.
    pub body_bytes_max: usize,
    /// How long a request waits until Kafka has acknowledged its events.
    pub acknowledgement_timeout: Duration,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Box<[IpRange]>,
    /// The URL by which networks reach the collector, without a slash at its end.
    pub public_url: Option<Box<str>>,
    /// A directory with dialects, which replace the built-in ones of the same names.
    pub dialects: Option<PathBuf>,
    /// The directory for events that Kafka has not acknowledged; `None` if requests fail instead.
    pub spool: Option<PathBuf>,
    /// Maximum size of the spool's files.
    pub spool_bytes_max: u64,
}

impl Collect {
    /// Returns the defaults for this address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            connections_per_client_max: 256,
            requests_per_address_max: NonZeroU32::new(10_000),
            events_per_app_max: NonZeroU32::new(50_000),
            body_bytes_max: 256 << 10,
            acknowledgement_timeout: Duration::from_secs(10),
            trusted_proxies: Box::default(),
            public_url: None,
            dialects: None,
            spool: None,
            spool_bytes_max: 1 << 30,
        }
    }
}

/// Reads the table; `None` if `listen` is not set. `others` are the listeners of other settings, `store` is the
/// directory of the store; `signs_urls` is true if a channel signs whole URLs.
pub(crate) fn read(
    collect: &mut Section<'_>,
    formats: &Formats,
    others: [(&str, SocketAddr); 2],
    store: &Path,
    signs_urls: bool,
) -> Option<Collect> {
    let listen = collect.text("listen", address::parse_listen);
    let per_client_max = collect.integer("connections_per_client_max", 1..=1_024);
    let requests_per_address_max = read_rate(collect, "requests_per_address_max");
    let events_per_app_max = read_rate(collect, "events_per_app_max");
    let body_bytes_max = collect.integer("body_bytes_max", BODY_BYTES_MIN..=BODY_BYTES_MAX);
    let timeout_ms = collect.text("acknowledgement_timeout", parse_timeout_ms);
    let trusted_proxies = collect.texts("trusted_proxies", address::parse_range);
    let public_url = collect.text("public_url", parse_public_url);
    let dialects = collect.path("dialects");
    let spool = collect.path("spool");
    if spool.as_deref() == Some(store) {
        let problem = "expected another directory than store.path";
        collect.reject("spool", problem, format!("{store:?}"));
    }
    let spool_bytes_max = collect.text("spool_bytes_max", parse_spool_bytes);
    if collect.is_set("spool_bytes_max") && !collect.is_set("spool") {
        collect.contradict("spool_bytes_max", "requires collect.spool".to_owned());
    }
    let listen = listen?;
    if let Some((other, _)) =
        others.iter().find(|(_, other)| *other == listen && listen.port() != 0)
    {
        let problem = format!("expected another address than {other}");
        collect.reject("listen", problem, format!("\"{listen}\""));
    }
    require_json(collect, formats);
    if signs_urls && !collect.is_set("public_url") {
        let problem = "requires collect.public_url, because [channels.signature] of a channel is of whole URLs";
        collect.contradict("listen", problem.to_owned());
    }
    let defaults = Collect::new(listen);
    Some(Collect {
        listen,
        connections_per_client_max: per_client_max.unwrap_or(defaults.connections_per_client_max),
        requests_per_address_max: requests_per_address_max
            .unwrap_or(defaults.requests_per_address_max),
        events_per_app_max: events_per_app_max.unwrap_or(defaults.events_per_app_max),
        body_bytes_max: body_bytes_max.unwrap_or(defaults.body_bytes_max),
        acknowledgement_timeout: timeout_ms
            .map_or(defaults.acknowledgement_timeout, Duration::from_millis),
        trusted_proxies: trusted_proxies.unwrap_or_default().into(),
        public_url,
        dialects,
        spool,
        spool_bytes_max: spool_bytes_max.unwrap_or(defaults.spool_bytes_max),
    })
}

/// Reads a number per second; 0 removes the limit.
fn read_rate(collect: &mut Section<'_>, key: &'static str) -> Option<Option<NonZeroU32>> {
    collect.integer(key, 0..=1_000_000).map(NonZeroU32::new)
}

fn parse_public_url(text: &str) -> Result<Box<str>, Problem> {
    let expected =
        r#"expected an http or https URL without query, such as "https://click.example.com""#;
    let url = Url::parse(text).map_err(|_| expected)?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if is_plain { Ok(url.as_str().trim_end_matches('/').into()) } else { Err(expected.into()) }
}

fn parse_timeout_ms(text: &str) -> Result<u64, Problem> {
    let ms = duration::parse_ms(text)?;
    if (TIMEOUT_MIN_MS..=TIMEOUT_MAX_MS).contains(&ms) {
        Ok(ms)
    } else {
        Err(r#"expected a duration from "100ms" to "60s""#.into())
    }
}

fn parse_spool_bytes(text: &str) -> Result<u64, Problem> {
    match size::parse_bytes(text)? {
        bytes @ SPOOL_BYTES_MIN..=SPOOL_BYTES_MAX => Ok(bytes),
        _ => Err(r#"expected a size from "16MiB" to "64GiB""#.into()),
    }
}

/// The collector produces JSON, which must be a format of all topics.
fn require_json(collect: &mut Section<'_>, formats: &Formats) {
    let topics = [
        ("clicks", &formats.clicks),
        ("activations", &formats.activations),
        ("effects", &formats.effects),
    ];
    for (topic, format) in topics {
        if !matches!(format, Format::Auto | Format::Json) {
            let problem = format!(
                "requires kafka.formats.{topic} to be \"auto\" or \"json\", because the collector produces JSON"
            );
            collect.contradict("listen", problem);
        }
    }
}
