//! Options of the commands on the catalogue.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Settings;

#[derive(Debug, Subcommand)]
pub enum Catalogue {
    /// List the campaigns that events name and the settings do not have, as lines of JSON
    ///
    /// Reads all stored clicks and impressions, and the counts of rows. Also works beside a running service, as of its
    /// last commit. Each line has spreadid, app, channel and name as far as the events say, clicks, impressions,
    /// activations, effects, first_seen and last_seen. See docs/catalogue.md in the source.
    Unknown(UnknownCampaigns),
    /// Write the campaigns that events name and the settings do not have, as entries of a catalogue file
    ///
    /// Names are those that the network's macros gave. With --out, adds them to the file, which the settings must
    /// include, once the settings are valid with them; existing lines are not changed. A campaign that cannot be added
    /// is left out, and standard error has the reason. Then `adtrail reload` applies them.
    Adopt(AdoptCampaigns),
}

#[derive(Debug, Args)]
pub struct UnknownCampaigns {
    #[command(flatten)]
    pub settings: Settings,

    /// Only campaigns of the app with this key
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,
}

#[derive(Debug, Args)]
pub struct AdoptCampaigns {
    #[command(flatten)]
    pub settings: Settings,

    /// Only campaigns of the app with this key
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Channel of the campaigns whose events do not say it
    #[arg(long, value_name = "ID")]
    pub channel: Option<String>,

    /// Format on standard output
    #[arg(long, value_enum, default_value_t = CatalogueFormat::Toml, conflicts_with = "out")]
    pub format: CatalogueFormat,

    /// Catalogue file to add them to, .toml or .csv, which need not exist; by default standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Only these campaigns; by default all
    #[arg(value_name = "SPREADID", value_parser = clap::value_parser!(u32).range(1..))]
    pub spreadids: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CatalogueFormat {
    Toml,
    Csv,
}
