//! `adtrail check-config`.

use super::load;
use crate::cli::Settings;

pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let config = load(settings)?;
    println!(
        "settings are valid: {} apps, {} channels, {} campaigns",
        config.policy.apps().count(),
        config.channels.len(),
        config.policy.campaigns().count()
    );
    Ok(())
}
