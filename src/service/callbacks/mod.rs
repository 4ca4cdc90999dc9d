//! Callbacks: which decisions the endpoints are notified of, and their delivery.
//!
//! [`Callbacks`] is made from the settings before the worker starts, which gets its [`interests`](Callbacks::interests)
//! and commits an outbox entry for each decision that an endpoint wants. [`delivery`](Callbacks::delivery) sends what is
//! due. `queue` connects the outbox of the store with the crate `callback`, `decided` reads the decisions that stand,
//! `event` describes one to an endpoint, and `note` keeps what an attempt has led to.

mod decided;
mod earlier;
mod event;
pub mod metrics;
mod note;
pub mod queue;
pub mod sample;
pub mod selection;
mod unclaimed;

use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::outbox::interest::{Interest, Interests};
use attribution::outbox::record::EndpointId;
use attribution::rules::policy::Policy;
use attribution::rules::row::EventType;
use callback::{CallbackError, Clock, Endpoint, Presets, Sender};
use config::Config;
use ingest::Shutdown;
use jiff::Timestamp;
use store::reader::Reader;
use tokio::runtime::Runtime;

use super::until_shutdown::until_shutdown;
use crate::timing::Timing;
use queue::StoreQueue;

/// The endpoints of the settings.
pub struct Callbacks {
    endpoints: Vec<Arc<Endpoint>>,
    settings: config::Callbacks,
    policy: Arc<Policy>,
}

impl Callbacks {
    /// # Errors
    /// If a preset has a mistake, or if an endpoint lacks what its preset needs.
    pub fn new(config: &Config) -> Result<Self, CallbackError> {
        let presets = Presets::load(&config.callbacks)?;
        let endpoints = Endpoint::all(&config.callbacks, &presets)?;
        Ok(Self {
            endpoints,
            settings: config.callbacks.clone(),
            policy: Arc::clone(&config.policy),
        })
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Warns of endpoints whose requests are not as documented by the network.
    pub fn warn_of_unverified(&self) {
        for endpoint in self.endpoints.iter().filter(|endpoint| !endpoint.is_documented()) {
            tracing::warn!(
                endpoint = endpoint.name(),
                source = endpoint.source(),
                "the preset of this endpoint is not verified: compare its requests with the network's documents"
            );
        }
    }

    /// Returns what the worker must know of the endpoints.
    pub fn interests(&self) -> Arc<Interests> {
        let interests = self.endpoints.iter().map(|endpoint| interest(endpoint, &self.policy));
        Arc::new(Interests::new(interests.collect(), Arc::clone(&self.policy)))
    }

    /// Returns the queue of what is due in the store.
    pub fn queue(&self, reader: &Reader, timing: callback::Timing) -> StoreQueue {
        let queue = StoreQueue::new(reader, &self.policy, &self.endpoints, clock());
        queue.with_lease(timing.lease)
    }

    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn sender(&self, timing: callback::Timing) -> Result<Sender, CallbackError> {
        Sender::new(self.endpoints.clone(), &self.settings, clock(), timing)
    }

    /// Starts to send what is due in the store, until shutdown is requested and the requests in progress have ended.
    ///
    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn start(
        &self,
        runtime: &Runtime,
        reader: &Reader,
        timing: &Timing,
        shutdown: &Shutdown,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
        self.warn_of_unverified();
        let _context = runtime.enter();
        let sender = Arc::new(self.sender(timing.callback)?);
        let queue = Arc::new(self.queue(reader, timing.callback));
        let interval = timing.unclaimed_callback_interval;
        let expiry =
            unclaimed::expire_regularly(queue.clone(), interval, until_shutdown(shutdown.clone()));
        let expiry = runtime.spawn(expiry);
        let delivery = callback::deliver(sender, queue, until_shutdown(shutdown.clone()));
        let delivery = runtime.spawn(delivery);
        let shutdown = shutdown.clone();
        Ok(async move {
            let delivered = delivery.await;
            if !matches!(delivered, Ok(Ok(()))) {
                // The listeners stop too.
                shutdown.request();
            }
            expiry.await??;
            Ok(delivered??)
        })
    }
}

/// Returns what the rules need to know of an endpoint.
fn interest(endpoint: &Endpoint, policy: &Policy) -> Interest {
    let activation = EventType::Activation.name();
    let pid = |key: &Box<str>| policy.app_by_key(key).map(|app| app.pid);
    let effects = endpoint.event_names().map(|names| {
        let effects = names.into_iter().filter(|name| *name != activation);
        effects.map(Into::into).collect::<Vec<Box<str>>>()
    });
    let has_effects = effects.as_ref().is_none_or(|names| !names.is_empty());
    let kinds = endpoint.kinds().iter().copied().filter(|kind| match kind.is_effect() {
        true => has_effects,
        false => endpoint.wants(*kind, activation),
    });
    Interest {
        endpoint: EndpointId::new(endpoint.name()),
        apps: endpoint.apps().iter().filter_map(pid).collect(),
        channels: endpoint.channels().to_vec(),
        kinds: kinds.collect(),
        event_names: effects.unwrap_or_default(),
        settle_ms: endpoint.settle_ms(),
        max_age_ms: endpoint.max_age_ms(),
        late_credit: endpoint.late_credit(),
    }
}

/// Returns the time by the clock of delivery.
pub fn now() -> EventTime {
    EventTime::from_millis((clock())()).unwrap_or_default()
}

/// Returns the clock of delivery: that of this machine.
fn clock() -> Clock {
    Arc::new(|| Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::Pid;
    use attribution::outbox::record::CallbackKind;

    use super::*;

    const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n\n[[apps]]\npid = 2\nkey = \"app-y\"\n\n\
                            [[channels]]\nid = \"toutiao\"\n\n[[callbacks.endpoint]]\nname = \"a\"\n";

    fn interest_of(lines: &str) -> Interest {
        let config = config::parse(&format!("{SETTINGS}{lines}\n")).unwrap();
        let callbacks = Callbacks::new(&config).unwrap();
        interest(&callbacks.endpoints[0], &config.policy)
    }

    #[test]
    fn a_network_wants_the_events_that_it_has_names_for() {
        let lines = "preset = \"oceanengine\"\nchannels = [\"toutiao\"]\napps = [\"app-y\"]\n\
                     settle = \"5s\"\nevents.purchase = \"\"\n";
        let interest = interest_of(lines);
        assert_eq!(interest.apps, [Pid(2)]);
        assert_eq!(interest.channels, ["toutiao".into()]);
        assert_eq!(interest.kinds, [CallbackKind::Activation, CallbackKind::Effect]);
        assert_eq!(interest.event_names, ["register".into()]);
        assert_eq!((interest.settle_ms, interest.max_age_ms), (5_000, 86_400_000));
    }

    #[test]
    fn what_has_no_name_is_not_wanted() {
        let unity = "preset = \"unity\"\nchannels = [\"toutiao\"]\nvalues.game_id = \"1\"\n";
        assert_eq!(interest_of(unity).kinds, [CallbackKind::Activation]);
        let none = "preset = \"oceanengine\"\nchannels = [\"toutiao\"]\n\
                    events = { activation = \"\", register = \"\", purchase = \"\" }\n";
        assert_eq!(interest_of(none).kinds, []);
    }

    #[test]
    fn a_webhook_wants_all_effects() {
        let lines = "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
                     credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
        let interest = interest_of(lines);
        assert!(interest.apps.is_empty() && interest.channels.is_empty());
        assert!(interest.event_names.is_empty());
        assert!(interest.kinds.contains(&CallbackKind::EffectAttributed));
        assert!(interest.kinds.contains(&CallbackKind::ActivationChanged));
        assert!(!interest.kinds.contains(&CallbackKind::Effect));
    }
}
