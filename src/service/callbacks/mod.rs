//! Callbacks: which decisions the endpoints are notified of, and their delivery.
//!
//! [`Callbacks`] is made from the settings before the worker starts, which gets its [`interests`](Callbacks::interests)
//! and commits an outbox entry for each decision that an endpoint wants. `delivery` sends what is due.
//! `queue` connects the outbox of the store with the crate `callback`, `decided` reads the decisions that stand,
//! `event` describes one to an endpoint, and `note` keeps what an attempt has led to.

mod decided;
pub mod delivery;
mod earlier;
mod event;
mod interest;
pub mod metrics;
mod note;
pub mod queue;
pub mod sample;
pub mod selection;
#[cfg(test)]
mod tests;
mod unclaimed;

use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::outbox::interest::Interests;
use attribution::rules::policy::Policy;
use callback::{CallbackError, Clock, Endpoint, Presets, Sender};
use config::Config;
use jiff::Timestamp;
use store::reader::Reader;

use interest::interest;
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

    /// Warns of endpoints from which a network gets the same events.
    pub fn warn_of_doubles(&self) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let others = self.endpoints.iter().skip(index + 1);
            for other in others.filter(|other| endpoint.doubles(other)) {
                tracing::warn!(
                    endpoint = endpoint.name(),
                    other = other.name(),
                    "a network gets the same events from both endpoints, and may count them twice"
                );
            }
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
}

/// Returns the time by the clock of delivery.
pub fn now() -> EventTime {
    EventTime::from_millis((clock())()).unwrap_or_default()
}

/// Returns the clock of delivery: that of this machine.
fn clock() -> Clock {
    Arc::new(|| Timestamp::now().as_millisecond())
}
