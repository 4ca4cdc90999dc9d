//! `adtrail health`.

use super::load;
use crate::cli::Health;
use crate::http_client;

pub fn run(options: &Health) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let path = if options.live { "/livez" } else { "/readyz" };
    http_client::get(http_client::local(config.admin_listen), path).map(drop)
}
