//! The state of every handler: settings, dialects, tokens, and the producer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use config::{Collect, Config, Link, Signature, Token, TokenDigest};
use governor::clock::DefaultClock;
use ingest::kafka::event_producer::EventProducer;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::CollectError;
use crate::dialect::Dialect;
use crate::dialect::catalogue::Dialects;
use crate::dialect::link::LinkTarget;
use crate::echo::Echo;
use crate::limits::{AddressLimit, AppLimit};
use crate::metrics::Metrics;
use crate::notes::UsedLink;
use crate::recent::{LinkKey, RecentRequest, RecentRequests};
use crate::signature::{self, Outcome, Signed};
use crate::spool::{Spool, Timing};

/// How long a shutdown waits for Kafka, with events that no request waits for.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it then waits for the spool.
const SPOOL_TIMEOUT: Duration = Duration::from_secs(5);

/// The length of all clicks of people that wait for Kafka or the spool. Their requests do not wait as long, so that
/// the limit of connections does not bound them.
pub(crate) const WAITING_CLICK_BYTES_MAX: u32 = 64 << 20;

/// The name of `params` with the channel of a touch whose campaign the settings do not have.
pub const REPORTED_CHANNEL: &str = "reported_channel";

/// A collector that is not serving yet; cheap to clone.
#[derive(Clone)]
pub struct Collector(Arc<State>);

struct State {
    config: Config,
    settings: Collect,
    channels: HashMap<Box<str>, Arc<Dialect>>,
    apps: HashMap<Box<str>, App>,
    campaigns: HashMap<u32, Campaign>,
    links: HashMap<Box<str>, Link>,
    recent: RecentRequests,
    fixed: Arc<Fixed>,
}

/// What a reload does not change.
struct Fixed {
    producer: Arc<EventProducer>,
    /// `None` if there is no limit.
    addresses: Option<AddressLimit>,
    /// `None` if none is configured.
    spool: Option<Spool>,
    metrics: Metrics,
    echo: Option<Echo>,
    /// A permit for each byte of clicks of people that may wait.
    waiting_clicks: Arc<Semaphore>,
}

/// An app that events may name.
pub(crate) struct App {
    pub key: Box<str>,
    /// The key as JSON.
    pub key_json: Box<RawValue>,
    pub correction_horizon_ms: Option<u64>,
    /// Indexes of the tokens that may write events of the app.
    writers: Vec<usize>,
    /// `None` if there is no limit.
    limit: Option<Arc<AppLimit>>,
}

/// Where a campaign of the settings belongs.
struct Campaign {
    app: Box<str>,
    channel: Box<str>,
}

impl Collector {
    /// Reads the dialects, starts the Kafka client and opens the spool. Registers the metrics with the installed
    /// recorder. `echo` gets a line for every event, and for every request without one.
    ///
    /// # Errors
    /// If a dialect is invalid or missing, if a key of a signature cannot be read, if librdkafka rejects a setting, or
    /// if the spool cannot be used.
    pub fn start(
        config: &Config,
        settings: &Collect,
        echo: Option<Echo>,
    ) -> Result<Self, CollectError> {
        let dialects = Dialects::load(settings.dialects.as_deref())?;
        let channels = dialects.of_channels(config)?;
        signature::check_keys(config)?;
        let producer = EventProducer::start(&config.kafka, settings.acknowledgement_timeout)?;
        let producer = Arc::new(producer);
        let metrics = Metrics::new();
        let spool = settings.spool.as_ref().map(|path| {
            let destination = Arc::clone(&producer);
            Spool::start(path, settings.spool_bytes_max, destination, Timing::default())
        });
        let fixed = Arc::new(Fixed {
            producer,
            addresses: settings
                .requests_per_address_max
                .map(|per_second_max| AddressLimit::new(per_second_max, DefaultClock::default())),
            spool: spool.transpose()?,
            metrics,
            echo,
            waiting_clicks: Arc::new(Semaphore::new(WAITING_CLICK_BYTES_MAX as usize)),
        });
        Ok(Self(Arc::new(State::new(config, settings, channels, fixed))))
    }

    /// Returns the collector with other apps, channels, campaigns, links and write tokens. It shares everything else
    /// with this one, the rates of apps and the last requests of links, too.
    ///
    /// # Errors
    /// If a dialect is invalid or missing, or if a key of a signature cannot be read.
    pub fn with_settings(&self, config: &Config) -> Result<Self, CollectError> {
        let before = &*self.0;
        let settings = &before.settings;
        let channels = Dialects::load(settings.dialects.as_deref())?.of_channels(config)?;
        signature::check_keys(config)?;
        let mut state = State::new(config, settings, channels, Arc::clone(&before.fixed));
        state.recent.share(&before.recent);
        for (key, app) in &mut state.apps {
            if let Some(known) = before.apps.get(key) {
                app.limit.clone_from(&known.limit);
            }
        }
        Ok(Self(Arc::new(state)))
    }

    /// Checks whether requests can succeed: whether Kafka answers, or there is room in a spool.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn readiness(&self) -> Result<(), &'static str> {
        match self.spool() {
            _ if self.is_connected() => Ok(()),
            Some(spool) if spool.has_room() => Ok(()),
            Some(_) => Err("kafka cannot be reached, and the spool has no room"),
            None => Err("kafka cannot be reached"),
        }
    }

    /// Returns true if Kafka answers.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.fixed.producer.is_connected()
    }

    pub(crate) fn fatal_error(&self) -> Option<String> {
        self.0.fixed.producer.fatal_error()
    }

    /// Stops draining the spool, and waits for the clicks of persons who have been redirected. Those that Kafka does
    /// not acknowledge go to the spool, or are counted as refused.
    pub(crate) async fn flush(&self) {
        let collector = self.clone();
        let flush = move || {
            if let Some(spool) = collector.spool() {
                spool.stop_draining(FLUSH_TIMEOUT);
            }
            collector.producer().flush(FLUSH_TIMEOUT);
            let events = collector.producer().give_up();
            if events > 0 {
                let has_spool = collector.spool().is_some();
                tracing::warn!(
                    events,
                    has_spool,
                    "kafka has not acknowledged these events: they are in the spool, or refused without one"
                );
            }
        };
        // Fails only if it panics, which ends the process.
        let _ = tokio::task::spawn_blocking(flush).await;
        let all = self.0.fixed.waiting_clicks.acquire_many(WAITING_CLICK_BYTES_MAX);
        if tokio::time::timeout(SPOOL_TIMEOUT, all).await.is_err() {
            tracing::error!("clicks of persons are lost: the spool does not write them");
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn settings(&self) -> &Collect {
        &self.0.settings
    }

    pub(crate) fn producer(&self) -> &EventProducer {
        &self.0.fixed.producer
    }

    pub(crate) fn spool(&self) -> Option<&Spool> {
        self.0.fixed.spool.as_ref()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.fixed.metrics
    }

    pub(crate) fn echo(&self) -> Option<&Echo> {
        self.0.fixed.echo.as_ref()
    }

    pub(crate) fn app(&self, key: &str) -> Option<&App> {
        self.0.apps.get(key)
    }

    /// Returns the channel's id and its dialect.
    pub(crate) fn channel(&self, id: &str) -> Option<(&str, &Arc<Dialect>)> {
        self.0.channels.get_key_value(id).map(|(id, dialect)| (&**id, dialect))
    }

    pub(crate) fn link(&self, id: &str) -> Option<&Link> {
        self.0.links.get(id)
    }

    pub(crate) fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        self.0.settings.trusted_proxies.iter().any(|network| network.contains(address))
    }

    /// Counts a request of this address, unless there are too many.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        self.0.fixed.addresses.as_ref().is_none_or(|addresses| addresses.admits(address))
    }

    /// Counts a click of a person that waits, until the permit is dropped; `None` if too many do.
    pub(crate) fn wait_with_click(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.0.fixed.waiting_clicks).try_acquire_many_owned(bytes).ok()
    }

    /// Returns false if the settings have this campaign for another app or channel. One that is not in the settings is
    /// allowed: it may be added after its link is in use.
    pub(crate) fn is_campaign_of(&self, spreadid: u32, app: &App, channel: &str) -> bool {
        let campaign = self.0.campaigns.get(&spreadid);
        campaign.is_none_or(|campaign| campaign.is_of(&app.key, channel))
    }

    /// Keeps what a request became, for those who set up its link.
    pub(crate) fn keep(&self, link: &UsedLink, app: &str, channel: &str, request: RecentRequest) {
        let key = match link {
            UsedLink::None => return,
            UsedLink::Person(id) => LinkKey::Person(id),
            &UsedLink::Report { kind, spreadid } => match spreadid {
                Some(spreadid) if self.has_campaign(spreadid, app, channel) => {
                    LinkKey::Report { spreadid, kind }
                }
                _ => LinkKey::OtherReport { app, channel, kind },
            },
        };
        self.0.recent.keep(key, request);
    }

    fn has_campaign(&self, spreadid: u32, app: &str, channel: &str) -> bool {
        let campaign = self.0.campaigns.get(&spreadid);
        campaign.is_some_and(|campaign| campaign.is_of(app, channel))
    }

    /// Returns the last requests of a network's link, newest first, as docs/collector.md describes them; `None` if the
    /// settings have no such campaign of this app and channel. They have no value of a request.
    pub fn recent_reports(&self, target: LinkTarget<'_>) -> Option<Value> {
        let LinkTarget { app, channel, spreadid, .. } = target;
        let (_, dialect) = self.channel(channel)?;
        let is_known = self.has_campaign(spreadid, app, channel);
        is_known.then(|| self.0.recent.of_report(target, dialect))
    }

    /// Like [`Collector::recent_reports`], for the link of people with this id.
    pub fn recent_clicks(&self, link: &str) -> Option<Value> {
        self.link(link).map(|_| self.0.recent.of_person(link))
    }

    /// Checks the signature of a request that reports a touch of this channel; `None` if the settings do not want it.
    pub(crate) fn check_signature(
        &self,
        channel: &str,
        uri: &Uri,
        has_body: bool,
    ) -> Option<Outcome> {
        let settings = self.checked_signature(channel)?;
        Some(self.signature_outcome(settings, channel, path_and_query(uri), has_body))
    }

    /// Like [`Collector::check_signature`], for a link of people. Also returns the query without what follows the
    /// signature, which is not part of the click.
    pub(crate) fn check_person_signature<'u>(
        &self,
        channel: &str,
        uri: &'u Uri,
    ) -> (Option<Outcome>, &'u str) {
        let Some(settings) = self.checked_signature(channel) else {
            return (None, uri.query().unwrap_or_default());
        };
        let signed = signature::up_to_signature(settings.scheme, path_and_query(uri));
        let outcome = self.signature_outcome(settings, channel, signed, false);
        (Some(outcome), signed.split_once('?').map_or("", |(_, query)| query))
    }

    fn checked_signature(&self, channel: &str) -> Option<&Signature> {
        self.0.config.signatures.get(channel).filter(|of| of.is_checked())
    }

    fn signature_outcome(
        &self,
        settings: &Signature,
        channel: &str,
        path_and_query: &str,
        has_body: bool,
    ) -> Outcome {
        let public_url = self.0.settings.public_url.as_deref().unwrap_or_default();
        let signed = Signed { public_url, path_and_query, has_body };
        let outcome = signature::check(settings, signed, Timestamp::now());
        self.metrics().checked_signature(channel, outcome);
        outcome
    }

    /// Adds the outcome of the signature to a touch of this channel. If the settings do not have its campaign, adds the
    /// channel, too, and an outcome even if none was checked: the campaign may later be one of a channel that enforces
    /// signatures.
    pub(crate) fn add_params(
        &self,
        touch: &mut Map<String, Value>,
        spreadid: u32,
        channel: &str,
        checked: Option<Outcome>,
    ) {
        let is_unknown = !self.0.campaigns.contains_key(&spreadid);
        let outcome = checked.or(is_unknown.then_some(Outcome::Missing));
        if let Some(outcome) = outcome {
            outcome.add_to(touch);
        }
        if is_unknown {
            signature::put_param(touch, REPORTED_CHANNEL, channel);
        }
    }

    /// Finds the write token that this text is; `None` if it is unknown or has expired.
    pub(crate) fn writer(&self, token: &str, now: Timestamp) -> Option<usize> {
        let digest = TokenDigest::of(token);
        // Every digest is compared, so that the time does not depend on which one is equal.
        let equal = self.0.config.write_tokens.iter().map(|known| known.digest.matches(&digest));
        let found = equal.enumerate().fold(None, |found, (index, is_equal)| match is_equal {
            true => Some(index),
            false => found,
        });
        let is_valid = |token: &Token| token.expires.is_none_or(|expires| expires > now);
        found.filter(|index| self.0.config.write_tokens.get(*index).is_some_and(is_valid))
    }
}

impl State {
    fn new(
        config: &Config,
        settings: &Collect,
        channels: HashMap<Box<str>, Arc<Dialect>>,
        fixed: Arc<Fixed>,
    ) -> Self {
        Self {
            config: config.clone(),
            settings: settings.clone(),
            channels,
            apps: apps(config, settings),
            campaigns: campaigns(config),
            links: config.links.iter().map(|link| (link.id.clone(), link.clone())).collect(),
            recent: RecentRequests::new(config),
            fixed,
        }
    }
}

impl Campaign {
    fn is_of(&self, app: &str, channel: &str) -> bool {
        *self.app == *app && *self.channel == *channel
    }
}

impl App {
    pub fn may_write(&self, writer: usize) -> bool {
        self.writers.contains(&writer)
    }

    /// Counts an event, unless there are too many.
    pub fn admits(&self) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.admits())
    }
}

fn path_and_query(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |target| target.as_str())
}

fn apps(config: &Config, settings: &Collect) -> HashMap<Box<str>, App> {
    let apps = config.policy.apps().filter_map(|app| {
        let tokens = config.write_tokens.iter().enumerate();
        let writers = tokens.filter(|(_, token)| token.apps.has(app.pid)).map(|(index, _)| index);
        // A text can always be written as JSON.
        let key_json = serde_json::value::to_raw_value(&*app.key).ok()?;
        let value = App {
            key: app.key.clone(),
            key_json,
            correction_horizon_ms: app.correction_horizon_ms,
            writers: writers.collect(),
            limit: settings.events_per_app_max.map(AppLimit::new).map(Arc::new),
        };
        Some((app.key.clone(), value))
    });
    apps.collect()
}

fn campaigns(config: &Config) -> HashMap<u32, Campaign> {
    let campaigns = config.policy.campaigns().filter_map(|campaign| {
        let app = config.policy.app(campaign.pid)?.key.clone();
        Some((campaign.spreadid.0, Campaign { app, channel: campaign.channel.clone() }))
    });
    campaigns.collect()
}
