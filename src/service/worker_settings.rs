//! What the attribution worker needs of the settings. A reload replaces it, and the worker takes it between two batches.

use std::sync::Arc;

use arc_swap::ArcSwap;
use attribution::outbox::interest::Interests;
use attribution::rules::policy::Policy;
use config::Config;
use store::hbase::ledger::LedgerApps;

use super::callbacks::Callbacks;

/// One version. Every batch is decided by one version throughout.
pub struct WorkerSettings {
    pub policy: Arc<Policy>,
    pub interests: Arc<Interests>,
    pub store: config::Store,
    /// `None` with an embedded store.
    pub ledger_apps: Option<LedgerApps>,
    /// See [`shown_version`].
    pub version: String,
}

impl WorkerSettings {
    pub fn new(config: &Config, callbacks: &Callbacks, ledger_apps: Option<LedgerApps>) -> Self {
        Self {
            policy: Arc::clone(&config.policy),
            interests: callbacks.interests(),
            store: config.store.clone(),
            ledger_apps,
            version: shown_version(&config.policy),
        }
    }
}

/// The version of the settings as `adtrail explain` shows it.
pub fn shown_version(policy: &Policy) -> String {
    format!("{:016x}", policy.version())
}

/// The latest version; clones share it.
pub type LatestSettings = Arc<ArcSwap<WorkerSettings>>;

/// The version that a worker uses, and the latest one.
pub struct SettingsFeed {
    latest: LatestSettings,
    used: Arc<WorkerSettings>,
}

impl SettingsFeed {
    /// The worker uses the present version already.
    pub fn new(latest: LatestSettings) -> Self {
        let used = latest.load_full();
        Self { latest, used }
    }

    /// Returns the latest version if the worker does not use it yet.
    pub fn newer(&mut self) -> Option<Arc<WorkerSettings>> {
        let latest = self.latest.load_full();
        if Arc::ptr_eq(&latest, &self.used) {
            return None;
        }
        self.used = Arc::clone(&latest);
        Some(latest)
    }
}
