//! `adtrail callbacks`: lists, shows and retries the callbacks of the outbox, and tests endpoints.

mod list;
mod retry;
mod send_test;

use attribution::outbox::port::Filter;
use config::Config;

use super::{UsageError, known_app};
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

fn filter(selection: &Selection) -> Result<Filter, UsageError> {
    selection.filter().map_err(|problem| UsageError(format!("--{problem}")))
}
