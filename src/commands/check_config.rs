//! `adtrail check-config`.

use collect::Dialects;

use super::{UsageError, load_for_kafka, print, require_apps};
use crate::cli::Settings;
use crate::counted::counted;
use crate::service::callbacks::Callbacks;

pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let config = load_for_kafka(settings)?;
    if let Some(collect) = &config.collect {
        let dialects = Dialects::load(collect.dialects.as_deref());
        let checked = dialects.and_then(|dialects| dialects.check(&config));
        let checked = checked.and_then(|()| collect::check_keys(&config));
        checked.map_err(|error| UsageError(error.to_string()))?;
    }
    let callbacks = Callbacks::new(&config).map_err(|error| UsageError(error.to_string()))?;
    callbacks.warn_of_unverified();
    callbacks.warn_of_doubles();
    // Settings without apps are valid, but probably a mistake.
    if let Err(UsageError(problem)) = require_apps(&config, settings) {
        tracing::warn!("{problem}");
    }
    let shown = format!(
        "settings are valid: {}, {}, {}, {}, {}\n",
        counted(config.policy.apps().count(), "app"),
        counted(config.channels.len(), "channel"),
        counted(config.policy.campaigns().count(), "campaign"),
        counted(config.tokens.len(), "token"),
        counted(config.workers, "worker")
    );
    print(shown.as_bytes())
}
