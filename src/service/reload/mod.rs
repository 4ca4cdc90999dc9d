//! Replaces the settings of a running process, on SIGHUP or by request.
//!
//! A `Reloader` loads the settings as at the start and validates them. If anything is wrong, or a setting differs that
//! cannot change while the process runs, nothing changes. Otherwise all parts take them: see [`Parts`].

mod parts;
mod signal;

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::bail;
use config::Config;
use export::http::admin::Reload;
use ingest::Shutdown;
use jiff::Timestamp;
use metrics::gauge;
use parking_lot::Mutex;

use super::notify;
use super::worker_settings::shown_version;
use crate::counted::counted;
pub use parts::{Parts, StorePart, WorkerPart};
use signal::Hangups;

config::describe_metrics! {
    /// 1 if the settings were last loaded successfully, at the start or by a reload; 0 if a reload was refused.
    describe_gauge SUCCESSFUL = "adtrail_config_last_reload_successful";
    /// When the settings were last loaded successfully.
    describe_gauge SUCCESS_TIME = "adtrail_config_last_reload_success_timestamp_seconds";
}

/// Loads and validates the settings, from the same file, environment and flags as at the start.
pub type Load = Arc<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

/// What a process needs to reload, from before it reads anything: until it has started, a SIGHUP waits.
pub struct Reloading {
    load: Load,
    hangups: Hangups,
}

impl Reloading {
    /// # Errors
    /// If the signal handler cannot be installed.
    pub fn new(load: Load) -> anyhow::Result<Self> {
        Ok(Self { load, hangups: Hangups::catch()? })
    }

    /// Starts the thread that reloads on each SIGHUP until shutdown is requested, and returns it with the function that
    /// reloads. The parts have the settings of `config` already.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        self,
        config: &Config,
        parts: Parts,
        shutdown: &Shutdown,
    ) -> anyhow::Result<(Reload, JoinHandle<()>)> {
        let reloader = Arc::new(Reloader::new(config, self.load, parts, shutdown));
        let thread = self.hangups.reload_on_each(Arc::clone(&reloader), shutdown)?;
        let reload: Reload = Arc::new(move || reloader.reload());
        Ok((reload, thread))
    }
}

/// The settings of a running process.
pub struct Reloader {
    load: Load,
    shutdown: Shutdown,
    current: Mutex<Current>,
}

struct Current {
    /// The latest settings, but with the storage of every app since the start.
    config: Config,
    parts: Parts,
}

impl Reloader {
    /// The parts have the settings of `config` already.
    fn new(config: &Config, load: Load, parts: Parts, shutdown: &Shutdown) -> Self {
        describe();
        observe_success();
        tracing::info!(version = shown_version(&config.policy), "settings loaded");
        let current = Mutex::new(Current { config: config.clone(), parts });
        Self { load, shutdown: shutdown.clone(), current }
    }

    /// Loads the settings again. Reloads run one after the other.
    ///
    /// # Errors
    /// If they are not replaced, a text with the reason.
    fn reload(&self) -> Result<String, String> {
        let mut current = self.current.lock();
        if self.shutdown.is_requested() {
            return Err("adtrail is stopping".to_owned());
        }
        let before = shown_version(&current.config.policy);
        match notify::during_reload(|| current.reload(&self.load)) {
            Ok(()) => {
                observe_success();
                let policy = &current.config.policy;
                let (apps, campaigns) = (policy.apps().count(), policy.campaigns().count());
                let version = shown_version(policy);
                tracing::info!(apps, campaigns, version, before, "settings reloaded");
                let [apps, campaigns] = [counted(apps, "app"), counted(campaigns, "campaign")];
                Ok(format!(
                    "settings reloaded: {apps}, {campaigns}, version {version}, before {before}"
                ))
            }
            Err(error) => {
                gauge!(SUCCESSFUL).set(0.0);
                let problem = format!("{error:#}");
                tracing::error!(
                    problem,
                    version = before,
                    "settings not reloaded: those before stay in effect"
                );
                Err(problem)
            }
        }
    }
}

impl Current {
    fn reload(&mut self, load: &Load) -> anyhow::Result<()> {
        let config = load()?;
        let mut fixed = config::fixed_changes(&self.config, &config);
        if self.parts.store.is_some() {
            fixed.extend(config::fixed_store_changes(&self.config, &config));
        }
        if !fixed.is_empty() {
            bail!("{}: cannot change while running; restart adtrail", fixed.join(", "));
        }
        let prepared = self.parts.prepare(&self.config, &config)?;
        self.parts.replace(prepared, &config);
        // The store keeps the settings of an app that has gone, which can return with the same ones only.
        let mut known_apps = std::mem::replace(&mut self.config, config).store.apps;
        known_apps.append(&mut self.config.store.apps);
        self.config.store.apps = known_apps;
        Ok(())
    }
}

fn observe_success() {
    gauge!(SUCCESSFUL).set(1.0);
    gauge!(SUCCESS_TIME).set(Timestamp::now().as_millisecond() as f64 / 1e3);
}
