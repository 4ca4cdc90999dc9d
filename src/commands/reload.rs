//! `adtrail reload`: makes the running service load its settings again. Also how a service does so.

use std::sync::Arc;

use anyhow::bail;
use config::Config;

use super::{load, load_for_kafka, print, require_apps};
use crate::cli::Settings;
use crate::http_client;
use crate::service::reload::Load;

const PATH: &str = "/-/reload";

pub fn run(settings: &Settings) -> anyhow::Result<()> {
    // A file that cannot be loaded does not name the service. The service would refuse it too.
    let config = load(settings).map_err(|error| anyhow::Error::msg(error.to_string()))?;
    let (status, text) = http_client::send("POST", http_client::local(config.admin_listen), PATH)?;
    if status != 200 {
        bail!("{}", text.trim_end());
    }
    print(text.as_bytes())
}

/// Returns what loads the settings of a service again, with the checks of its start.
pub fn loader(settings: &Settings) -> Load {
    let settings = settings.clone();
    Arc::new(move || -> anyhow::Result<Config> {
        let config = load_for_kafka(&settings)?;
        require_apps(&config, &settings)?;
        Ok(config)
    })
}
