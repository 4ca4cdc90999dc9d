//! `adtrail callbacks`: lists, shows and retries the callbacks of the outbox, and tests endpoints.

mod list;
mod retry;
mod send_test;

use attribution::outbox::port::{Filter, Outbox};
use attribution::outbox::record::EndpointId;
use config::Config;
use store::outbox::StoredOutbox;

use super::{UsageError, known_app, unknown_name};
use crate::cli::{Callbacks, Settings};
use crate::service::callbacks::selection::Selection;
use crate::timing::Timing;

pub fn run(command: &Callbacks, timing: Timing) -> anyhow::Result<()> {
    match command {
        Callbacks::List(options) => list::list(options),
        Callbacks::Show(options) => list::show(options),
        Callbacks::Retry(options) => retry::run(options, timing),
        Callbacks::Test(options) => send_test::run(options, timing),
    }
}

/// Returns the pid of the app that `--app` names.
fn pid(config: &Config, settings: &Settings, key: Option<&str>) -> Result<Option<u32>, UsageError> {
    key.map(|key| known_app(config, settings, key).map(|app| app.pid.0)).transpose()
}

/// The names of the endpoints in the settings.
fn configured(config: &Config) -> Vec<&str> {
    config.callbacks.endpoints.iter().map(|endpoint| &*endpoint.name).collect()
}

/// Checks that an option names an endpoint of the settings.
fn require_configured(config: &Config, option: &str, name: &str) -> Result<(), UsageError> {
    let known = configured(config);
    match known.contains(&name) {
        true => Ok(()),
        false => Err(unknown_name(option, "no such endpoint is configured", name, known)),
    }
}

/// Checks that `--endpoint` names one of the settings, or a former one with callbacks in the outbox.
fn require_known(config: &Config, outbox: &mut StoredOutbox, name: &str) -> anyhow::Result<()> {
    let mut known = configured(config);
    if known.contains(&name) {
        return Ok(());
    }
    let counts = outbox.counts()?;
    if counts.contains_key(&EndpointId::new(name)) {
        return Ok(());
    }
    let former = counts.keys().map(EndpointId::as_str).filter(|former| !known.contains(former));
    let former: Vec<&str> = former.collect();
    known.extend(former);
    let problem = "no such endpoint is configured or has callbacks";
    Err(unknown_name("--endpoint", problem, name, known).into())
}

fn filter(selection: &Selection) -> Result<Filter, UsageError> {
    selection.filter().map_err(|problem| UsageError(format!("--{problem}")))
}
