//! The running delivery, whose endpoints and settings a reload replaces.

use std::sync::Arc;

use anyhow::Context;
use callback::Sender;
use config::Config;
use ingest::Shutdown;
use store::reader::Reader;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use super::metrics::OutboxMetrics;
use super::queue::StoreQueue;
use super::{Callbacks, unclaimed};
use crate::service::until_shutdown::until_shutdown;
use crate::timing::Timing;

/// Sends what is due in a store. Clones are the same delivery.
#[derive(Clone)]
pub struct Delivery {
    lanes: Arc<watch::Sender<Lanes>>,
    outbox: Arc<OutboxMetrics>,
    reader: Reader,
    runtime: Handle,
    timing: callback::Timing,
}

/// What one version of the endpoints is sent with.
#[derive(Clone)]
struct Lanes {
    sender: Arc<Sender>,
    queue: Arc<StoreQueue>,
}

/// Callbacks of other settings, for [`Delivery::replace`].
pub struct Prepared {
    pub callbacks: Callbacks,
    /// `None` if the endpoints are the same.
    lanes: Option<Lanes>,
}

impl Delivery {
    /// Starts to send until shutdown is requested and the requests in progress have ended: then the returned future
    /// completes.
    ///
    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn start(
        callbacks: &Callbacks,
        runtime: &Runtime,
        reader: &Reader,
        timing: &Timing,
        shutdown: &Shutdown,
    ) -> anyhow::Result<(Self, impl Future<Output = anyhow::Result<()>> + Send + use<>)> {
        callbacks.warn_of_unverified();
        callbacks.warn_of_doubles();
        let _context = runtime.enter();
        let (lanes, latest) = watch::channel(Lanes::new(callbacks, reader, timing.callback)?);
        let interval = timing.unclaimed_callback_interval;
        let (queues, expires_until) = (latest.clone(), until_shutdown(shutdown.clone()));
        let queue = move || Arc::clone(&queues.borrow().queue);
        let expiry = runtime.spawn(unclaimed::expire_regularly(queue, interval, expires_until));
        let delivery = runtime.spawn(deliver(latest, shutdown.clone()));
        let shutdown = shutdown.clone();
        let delivered = async move {
            let delivered = delivery.await;
            if !matches!(delivered, Ok(Ok(()))) {
                // The listeners stop too.
                shutdown.request();
            }
            expiry.await??;
            delivered?
        };
        let delivery = Self {
            lanes: Arc::new(lanes),
            outbox: Arc::new(OutboxMetrics::new(callbacks, reader, timing)),
            reader: reader.clone(),
            runtime: runtime.handle().clone(),
            timing: timing.callback,
        };
        Ok((delivery, delivered))
    }

    /// The metrics of the endpoints.
    pub fn outbox(&self) -> Arc<OutboxMetrics> {
        Arc::clone(&self.outbox)
    }

    /// Makes the callbacks of `new` settings, which replace those of `old`.
    ///
    /// # Errors
    /// See [`Callbacks::new`].
    pub fn prepare(&self, old: &Config, new: &Config) -> anyhow::Result<Prepared> {
        let callbacks = Callbacks::new(new)?;
        // The files of presets may have changed, too.
        let is_same =
            new.callbacks.presets.is_none() && new.callbacks.has_values_of(&old.callbacks);
        let _context = self.runtime.enter();
        let lanes = || Lanes::new(&callbacks, &self.reader, self.timing);
        let lanes = if is_same { None } else { Some(lanes()?) };
        Ok(Prepared { callbacks, lanes })
    }

    /// Sends by these settings from now on. Changed endpoints begin once the requests in progress have ended.
    pub fn replace(&self, prepared: Prepared) {
        let Prepared { callbacks, lanes } = prepared;
        let Some(lanes) = lanes else {
            return self.lanes.borrow().queue.set_policy(Arc::clone(&callbacks.policy));
        };
        callbacks.warn_of_unverified();
        callbacks.warn_of_doubles();
        self.outbox.set_endpoints(&callbacks);
        self.lanes.send_replace(lanes);
    }
}

impl Lanes {
    fn new(
        callbacks: &Callbacks,
        reader: &Reader,
        timing: callback::Timing,
    ) -> anyhow::Result<Self> {
        let sender = callbacks.sender(timing).context("callbacks cannot be sent")?;
        let queue = callbacks.queue(reader, timing);
        Ok(Self { sender: Arc::new(sender), queue: Arc::new(queue) })
    }
}

/// Sends with the latest lanes until shutdown is requested.
async fn deliver(mut latest: watch::Receiver<Lanes>, shutdown: Shutdown) -> anyhow::Result<()> {
    while !shutdown.is_requested() {
        let Lanes { sender, queue } = latest.borrow_and_update().clone();
        let stop = replaced_or_stopped(latest.clone(), shutdown.clone());
        callback::deliver(sender, queue, stop).await?;
        // Without endpoints, delivery ends at once.
        replaced_or_stopped(latest.clone(), shutdown.clone()).await;
    }
    Ok(())
}

/// Completes once there are other lanes than this receiver has seen, or shutdown is requested.
async fn replaced_or_stopped(mut latest: watch::Receiver<Lanes>, shutdown: Shutdown) {
    let replaced = async {
        if latest.changed().await.is_err() {
            // No reload is possible any more.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = replaced => {}
        () = until_shutdown(shutdown) => {}
    }
}
