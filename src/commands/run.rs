//! `adtrail run`.

use ingest::Shutdown;

use super::{load_for_kafka, require_apps};
use crate::cli::Settings;
use crate::{service, telemetry};

pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let config = load_for_kafka(settings)?;
    require_apps(&config, settings)?;
    let recorder = telemetry::start_metrics()?;
    service::run(&config, &Shutdown::default(), recorder)
}
