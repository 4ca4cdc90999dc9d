//! `adtrail explain`: why an activation is credited as it is, in the store of the service or
//! among the events of files.

use std::io::Write;

use anyhow::{Context, bail};
use attribution::explain::Explanation;
use attribution::policy::AppPolicy;
use attribution::worker::explain;
use config::Config;
use store::embedded::open_for_reading;

use super::replay::Replica;
use super::{known_app, load};
use crate::cli::Explain;

pub fn run(options: &Explain) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let found = if options.events.is_empty() {
        let mut reader = open_for_reading(&config.store)?;
        explain(&mut reader, &config.policy, app.pid, &options.activation)?
    } else {
        among_files(options, &config, app)?
    };
    let Some(explanation) = found else {
        let id = &options.activation;
        bail!("--activation: {} has no activation with this event_id: {id}", app.key);
    };
    let text = if options.json {
        format!("{:#}\n", export::explain::json(&explanation, &config.policy))
    } else {
        export::explain::text(&explanation, &config.policy)
    };
    std::io::stdout().lock().write_all(text.as_bytes()).context("can not write")
}

fn among_files(
    options: &Explain,
    config: &Config,
    app: &AppPolicy,
) -> anyhow::Result<Option<Explanation>> {
    let mut replica = Replica::of_files(config, &options.events)?.0;
    Ok(explain(&mut replica.reader, &config.policy, app.pid, &options.activation)?)
}
