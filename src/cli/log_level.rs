//! Options of `adtrail log-level`.

use clap::Args;

use super::Settings;

#[derive(Debug, Args)]
pub struct LogLevel {
    #[command(flatten)]
    pub settings: Settings,

    /// off, error, warn, info, debug or trace, of adtrail's own crates; directives as in RUST_LOG, such as
    /// info,adtrail_ingest=debug; or default, for what was logged at start
    #[arg(value_name = "LEVEL")]
    pub level: Option<String>,

    /// Return to what was logged at start after this time, such as 10m
    #[arg(long = "for", value_name = "DURATION", requires = "level")]
    pub duration: Option<String>,
}
