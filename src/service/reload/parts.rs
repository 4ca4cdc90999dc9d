//! The parts of a process that take other settings while they run.

use std::sync::Arc;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use attribution::facts::event::Pid;
use collect::{CollectRoutes, Collector};
use config::{AppStore, Config};
use export::ExportRoutes;
use ingest::LivePolicy;
use store::StoreError;
use store::hbase::Shared;
use store::hbase::ledger::LedgerApps;
use store::reader::Reader;

use crate::service::attribution_thread::PipelineMetrics;
use crate::service::callbacks::Callbacks;
use crate::service::callbacks::delivery::{Delivery, Prepared};
use crate::service::links::tracking_links;
use crate::service::worker_settings::{LatestSettings, SettingsFeed, WorkerSettings};

/// Each part takes a version of the settings as a whole: the worker between two batches, listeners between two
/// requests. `None` is a part that the process does not have.
pub struct Parts {
    pub store: Option<StorePart>,
    pub worker: Option<WorkerPart>,
    pub delivery: Option<Delivery>,
    pub collector: Option<CollectRoutes>,
    pub export: Option<ExportRoutes>,
}

pub enum StorePart {
    /// The reader is one of the writing process.
    Embedded(Reader),
    Shared(Arc<Shared>),
}

/// What reads Kafka and attributes.
pub struct WorkerPart {
    settings: LatestSettings,
    pub decoded_by: LivePolicy,
    pub metrics: Arc<PipelineMetrics>,
}

/// What the parts need of other settings.
pub struct PreparedParts {
    /// `None` if other processes send them.
    callbacks: Option<Prepared>,
    collector: Option<Collector>,
    ledger_apps: Option<LedgerApps>,
}

impl Parts {
    /// Does everything that can fail. Nothing takes the settings yet.
    ///
    /// # Errors
    /// If a part cannot have these settings.
    pub fn prepare(&self, old: &Config, new: &Config) -> anyhow::Result<PreparedParts> {
        let collector = self.collector.as_ref().map(|routes| routes.prepare(new)).transpose()?;
        let callbacks = match &self.delivery {
            Some(delivery) => Some(delivery.prepare(old, new)?),
            None => {
                if self.store.is_some() {
                    // Refuses what other processes would refuse.
                    Callbacks::new(new)?;
                }
                None
            }
        };
        self.refuse_storage_of_stored_app(old, new)?;
        // Last, because it stores the keys of new apps.
        let ledger_apps = self.prepare_store(new).context("the store cannot have these apps")?;
        Ok(PreparedParts { callbacks, collector, ledger_apps })
    }

    /// An embedded store takes the storage settings of an app that it has when it is opened. `old` has those of every app
    /// since then.
    fn refuse_storage_of_stored_app(&self, old: &Config, new: &Config) -> anyhow::Result<()> {
        let Some(StorePart::Embedded(reader)) = &self.store else { return Ok(()) };
        let stored = reader.apps()?;
        let returns = |pid: Pid| stored.contains_key(&pid) && !old.store.apps.contains_key(&pid);
        for (pid, AppStore { retention_ms, fanout }) in &new.store.apps {
            if returns(*pid) && (retention_ms.is_some() || fanout.is_some()) {
                let app = new.policy.app(*pid).map_or("", |app| &*app.key);
                bail!(
                    "apps.store of {app:?}, whose rows are stored already: cannot change while running; restart adtrail"
                );
            }
        }
        Ok(())
    }

    fn prepare_store(&self, new: &Config) -> Result<Option<LedgerApps>, StoreError> {
        match &self.store {
            None => Ok(None),
            Some(StorePart::Embedded(reader)) => {
                reader.store_app_keys(&new.policy)?;
                Ok(None)
            }
            Some(StorePart::Shared(store)) if self.worker.is_some() => {
                match store.require_kept(&new.policy) {
                    // The start warns that TTLs are not checked, and goes on.
                    Err(StoreError::HBase(_)) => {}
                    kept => kept?,
                }
                store.ledger_apps(&new.policy).map(Some)
            }
            Some(StorePart::Shared(store)) => {
                store.reader().require_apps(&new.policy)?;
                Ok(None)
            }
        }
    }

    /// Gives the settings to all parts.
    pub fn replace(&self, prepared: PreparedParts, new: &Config) {
        let PreparedParts { callbacks, collector, ledger_apps } = prepared;
        if let Some((worker, prepared)) = self.worker.as_ref().zip(callbacks.as_ref()) {
            worker.replace(&prepared.callbacks, ledger_apps, new);
        }
        if let Some((delivery, prepared)) = self.delivery.as_ref().zip(callbacks) {
            delivery.replace(prepared);
        }
        if let Some((routes, collector)) = self.collector.as_ref().zip(collector.clone()) {
            routes.replace(collector);
        }
        if let Some(export) = &self.export {
            let links = tracking_links(new, collector);
            let policy = Arc::clone(&new.policy);
            export.replace(policy, &new.tokens, new.downloads_per_token_max, links);
        }
    }
}

impl WorkerPart {
    /// The part of a worker that has these settings. Registers the metrics.
    pub fn new(config: &Config, callbacks: &Callbacks, ledger_apps: Option<LedgerApps>) -> Self {
        let settings = WorkerSettings::new(config, callbacks, ledger_apps);
        Self {
            settings: Arc::new(ArcSwap::from_pointee(settings)),
            decoded_by: Arc::new(ArcSwap::new(Arc::clone(&config.policy))),
            metrics: Arc::new(PipelineMetrics::new(config)),
        }
    }

    /// What the worker takes further settings from.
    pub fn feed(&self) -> SettingsFeed {
        SettingsFeed::new(Arc::clone(&self.settings))
    }

    /// Records are decoded by the settings only after the worker has them: otherwise it would skip facts of new apps.
    fn replace(&self, callbacks: &Callbacks, ledger_apps: Option<LedgerApps>, new: &Config) {
        self.settings.store(Arc::new(WorkerSettings::new(new, callbacks, ledger_apps)));
        self.metrics.set_policy(Arc::clone(&new.policy));
        self.decoded_by.store(Arc::clone(&new.policy));
    }
}
