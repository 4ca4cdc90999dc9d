//! `adtrail callbacks retry`.

use std::thread;
use std::time::Instant;

use anyhow::Context;
use attribution::outbox::port::Outbox;
use config::Config;
use store::StoreError;
use store::embedded::Embedded;

use super::{filter, pid, require_configured};
use crate::cli::RetryCallbacks;
use crate::commands::{load, write_line};
use crate::service::callbacks::now;
use crate::service::callbacks::selection::Selection;
use crate::service::control_socket;
use crate::timing::Timing;

pub fn run(options: &RetryCallbacks, timing: Timing) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    if let Some(name) = &options.endpoint {
        // Nobody sends the callbacks of a former one.
        require_configured(&config, "--endpoint", name)?;
    }
    let selection = Selection {
        endpoint: options.endpoint.clone(),
        pid: pid(&config, &options.settings, options.app.as_deref())?,
        activation: options.activation.clone(),
        effect: options.effect.clone(),
        kind: options.kind.clone(),
        state: Some(options.state.clone()),
    };
    let filter = filter(&selection)?;
    let retried = match config.store.hbase {
        Some(_) => {
            let reader = store::open_for_reading(&config.store, &config.policy)?;
            reader.outbox().retry(&filter, now())?
        }
        None => retry_embedded(&config, &selection, timing)?,
    };
    write_line(&serde_json::json!({"retried": retried}))
}

/// Asks the service that has the store open; without one, changes the store itself.
fn retry_embedded(config: &Config, selection: &Selection, timing: Timing) -> anyhow::Result<u64> {
    let started = Instant::now();
    let filter = filter(selection)?;
    // Opening a missing store for writing would create it.
    drop(store::embedded::open_for_reading(&config.store)?);
    loop {
        if let Some(count) = control_socket::request_retry(&config.store.path, selection)? {
            return Ok(count);
        }
        match Embedded::open(&config.store, &config.policy) {
            Ok(embedded) => return Ok(embedded.outbox().retry(&filter, now())?),
            // A service that is starting or stopping has the store open but does not listen.
            Err(StoreError::InUse { .. }) if started.elapsed() < timing.backup_store_timeout => {
                thread::sleep(timing.backup_retry_interval);
            }
            Err(error @ StoreError::InUse { .. }) => {
                return Err(error).context("the process that uses the store accepts no requests");
            }
            Err(error) => return Err(error.into()),
        }
    }
}
