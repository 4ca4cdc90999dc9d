//! Options of the commands that maintain a store.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Settings;

#[derive(Debug, Args)]
pub struct Copy {
    /// Settings file of the source store
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,

    /// Settings file of the target store: an empty directory, or tables created by `adtrail hbase init`
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum HBase {
    /// Create missing tables, and show how existing ones differ from the settings
    ///
    /// Writes to standard output a line for each table, and one for each difference, with the HBase shell command that
    /// removes it. Existing tables are not changed. Exits with 1 if there are differences.
    Init(InitHBase),
}

#[derive(Debug, Args)]
pub struct InitHBase {
    #[command(flatten)]
    pub settings: Settings,

    /// Show what would be created, without creating it
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct Regions {
    #[command(flatten)]
    pub settings: Settings,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Repeat every SECONDS, until interrupted
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub watch: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub settings: Settings,

    /// Directory of the backups of one store; created if missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Remove all but the N newest backups once this one is complete
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Restore {
    #[command(flatten)]
    pub settings: Settings,

    /// Directory of backups
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Number of the backup; by default the newest
    #[arg(long, value_name = "ID")]
    pub backup: Option<u32>,

    /// Restore nothing, and list all backups, oldest first
    #[arg(long, conflicts_with = "backup")]
    pub list: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub settings: Settings,

    /// Rebuild damaged data that derives from facts; the service must be stopped
    ///
    /// Facts are not changed. If a file is damaged nothing is written: restore a backup.
    #[arg(long)]
    pub repair: bool,

    /// Attribution settings have changed: decisions that differ under them are not damage
    #[arg(long)]
    pub settings_changed: bool,

    /// List all problems, not only the first 10 of each kind
    #[arg(long)]
    pub all: bool,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}
