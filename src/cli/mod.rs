//! The command line.

mod callbacks;
mod catalogue;
mod kafka;
mod log_level;
mod rows;
mod store;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use callbacks::{Callbacks, ListCallbacks, RetryCallbacks, ShowCallbacks, TestCallback};
pub use catalogue::{AdoptCampaigns, Catalogue, CatalogueFormat, UnknownCampaigns};
pub use kafka::{Peek, ReplayDlq};
pub use log_level::LogLevel;
pub use rows::{CheckEvents, Download, Explain, Format, Replay};
pub use store::{Backup, Copy, HBase, InitHBase, Regions, Restore, Verify};

/// Verifiable ad attribution: reads clicks, activations and effects from Kafka, credits each activation to the ad that
/// caused it, and exports the rows as CSV.
#[derive(Debug, Parser)]
#[command(name = "adtrail", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Format of the logs on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read Kafka, attribute, and serve CSV, in one process
    Run(Settings),
    /// Read Kafka and attribute, into a shared store (store.kind = "hbase")
    ///
    /// Any number of processes on any machines: they are members of the consumer group kafka.group, which assigns
    /// partitions to them.
    Attribute(Settings),
    /// Serve CSV from a shared store (store.kind = "hbase"); any number of processes
    Export(Settings),
    /// Receive reports of ad networks and events of apps over HTTP, and produce them to Kafka; any number of processes
    ///
    /// Listens on collect.listen. A request is answered with success once Kafka has acknowledged its events, or once
    /// they are on disk in collect.spool. `adtrail run` collects too if collect.listen is set. See docs/collector.md in
    /// the source.
    Collect(Collect),
    /// Print the link to paste into the console of an ad network
    ///
    /// The network replaces the macros in the link and calls it for each click, or impression. The link begins with
    /// collect.public_url. With --kind person, prints the tracking links of the campaign, which people click, a line
    /// for each. See docs/collector.md in the source.
    Link(Link),
    /// Manage the tables of a store in HBase
    #[command(subcommand, name = "hbase")]
    HBase(HBase),
    /// Copy a store into an empty one: from files into HBase, or the other way round
    ///
    /// No process may read Kafka for either store in the meantime. All facts, decisions and rows are copied unchanged,
    /// read back and compared, together with the Kafka positions. The source is not changed. Writes a line for each
    /// table to standard output.
    Copy(Copy),
    /// Show everything with generated traffic: broker, attribution and CSV in one process
    Demo(Demo),
    /// Write an app's rows as CSV or JSON lines, with or without a running service
    ///
    /// At the end, standard error shows the number of rows and bytes, and their SHA-256 as sha256sum prints it.
    Download(Box<Download>),
    /// Explain the attribution of an activation, with or without a running service
    ///
    /// Each reason names its section of the attribution contract, docs/contract.md in the source.
    Explain(Explain),
    /// Attribute events from files, without Kafka and without a service
    ///
    /// Files and standard input may be compressed with gzip or zstd, whatever their names. A truncated or damaged file
    /// fails the command, and no row is written.
    ///
    /// Invalid lines are reported on standard error and skipped. All others are attributed and written; then the
    /// command exits with 1, so that scripts can detect it.
    Replay(Replay),
    /// Check files of events before they are sent: invalid lines, unusable values, ids that cannot match
    ///
    /// Reads the files of `adtrail replay`. Writes, by app and type, the dead letters that the service would produce
    /// and the problems of each field, with the first line of each; then, by app, which ids touches and activations
    /// have in common. A line of the output that begins with an exclamation mark is a fault: events or matches would be
    /// lost. Exits with 1 if there are any. See docs/check-events.md in the source.
    CheckEvents(CheckEvents),
    /// Show the records of a topic as lines of JSON, decoded as the service does
    ///
    /// Each line has partition, offset, time (broker timestamp in UTC), key, schema and event; a record that the
    /// service would reject has error (code, field, message) and its value, a dead letter has its headers. Bytes that
    /// are not UTF-8 text are {"base64": …}. All partitions are read in order, up to the current end of the topic.
    /// Nothing is changed in Kafka.
    Peek(Peek),
    /// Send the dead letters of a topic to their source topics again, each once
    ///
    /// TOPIC is read from its beginning to its current end. Each letter is sent to its source topic with its original
    /// key, value and headers, and recorded in TOPIC.replayed in the same transaction: a second run sends only new
    /// letters and those that were filtered out, even if the first run was killed.
    ///
    /// Writes CSV to standard output, a line for each code and topic: code, topic, letters, sent (with --dry-run
    /// would_send), sent_before, repeated (further letters of one record), filtered, left (not letters of a configured
    /// topic; without code and topic). Exits with 1 if Kafka does not accept all of them.
    #[command(name = "replay-dlq")]
    ReplayDlq(ReplayDlq),
    /// Show the regions of the store: rows, bytes and load
    ///
    /// Also works beside a running service, as of its last commit. A region is a range of row keys; docs/regions.md in
    /// the source describes how regions form, and what to do about one that is much larger or busier than the others.
    Regions(Regions),
    /// Back up the store into a directory of backups; the service may run
    ///
    /// A backup contains everything that was committed when the command started. Files that an earlier backup in DIR
    /// contains are not copied again. Writes one line of JSON to standard output: backup (its number), time, rows,
    /// positions (next offsets by topic and partition), files, bytes, and of these new_files and new_bytes. A backup in
    /// DIR is complete or absent.
    Backup(Backup),
    /// Restore a backup to the store of the settings
    ///
    /// The directory store.path must be empty or missing. Each file is verified with its checksum. `adtrail run` then
    /// continues from the positions of the backup. Writes the line of the backup to standard output.
    Restore(Restore),
    /// Check the store for damage, and rebuild derived data
    ///
    /// Reads every file, finds every fact, repeats every decision, and compares every row and count with what is
    /// expected. Also works beside a running service, as of its last commit. Writes a line for each kind of check to
    /// standard output, then the problems. Exits with 1 if there are any. See docs/verify.md in the source.
    Verify(Verify),
    /// List, show and retry callbacks to ad networks and other servers, and test endpoints
    ///
    /// See docs/callbacks.md in the source.
    #[command(subcommand)]
    Callbacks(Callbacks),
    /// List campaigns that the settings do not have, and take them over
    ///
    /// See docs/catalogue.md in the source.
    #[command(subcommand)]
    Catalogue(Catalogue),
    /// Check whether the service with these settings is ready, for health checks of containers and scripts
    ///
    /// Asks admin.listen on this machine. Exits with 0 if the service is ready, and with 1 if it is not or does not
    /// respond; standard error has the reason.
    Health(Health),
    /// Show or change what the service with these settings logs, until it is restarted
    ///
    /// Asks admin.listen on this machine. Writes what is logged to standard output, as directives of RUST_LOG. Each
    /// process has its own level. See docs/operations.md in the source.
    LogLevel(LogLevel),
    /// Check the settings, and report all errors
    CheckConfig(Settings),
    /// Make the running service load its settings again
    ///
    /// Asks admin.listen on this machine. Apps, channels, campaigns, links, tokens, callback endpoints, windows and fraud
    /// rules take effect without a restart. If the settings are invalid, or one differs that cannot change while the
    /// service runs, nothing changes, standard error has the reason, and the exit code is 1. SIGHUP does the same without
    /// an answer.
    Reload(Settings),
    /// Manage API tokens
    #[command(subcommand)]
    Token(Token),
    /// Run the cases of the attribution contract on adtrail or on another engine
    ///
    /// Each case runs in four orders of arrival: as given, reversed, and each with all events delivered again. Writes a
    /// line for each case that fails, then one with the counts. Exits with 1 if any case failed.
    Conformance(Conformance),
}

impl Command {
    /// Checks whether the command runs until it is stopped.
    pub fn is_service(&self) -> bool {
        matches!(
            self,
            Self::Run(_) | Self::Attribute(_) | Self::Export(_) | Self::Collect(_) | Self::Demo(_)
        )
    }
}

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Settings file; by default `adtrail.toml`, if it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Set one setting, overriding file and environment; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct Collect {
    #[command(flatten)]
    pub settings: Settings,

    /// Write a line of JSON to standard output for each request: what was read, and what it became
    ///
    /// For setting up a network or an app. Lines have device ids, addresses and callback tokens.
    #[arg(long)]
    pub echo: bool,
}

#[derive(Debug, Args)]
pub struct Link {
    #[command(flatten)]
    pub settings: Settings,

    /// Key of the app
    #[arg(long, value_name = "KEY")]
    pub app: String,

    /// Id of the channel
    #[arg(long, value_name = "ID")]
    pub channel: String,

    /// spreadid of the campaign, which must belong to this app and channel
    #[arg(long, value_name = "SPREADID")]
    pub campaign: u32,

    /// What the network reports with this link, or `person` for the `links` of the campaign
    #[arg(
        long,
        value_name = "click|impression|person",
        value_enum,
        default_value_t = LinkKind::Click
    )]
    pub kind: LinkKind,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum LinkKind {
    Click,
    Impression,
    Person,
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token, and the settings entry that admits it
    ///
    /// Writes to standard output the token, an empty line, and the entry for `tokens`, or with --write for
    /// `write_tokens`, with the hash of the token, which does not reveal it. Nothing is stored, and no setting is
    /// changed. Add the entry to the settings and run `adtrail reload`; give the token to its user, who sends it as
    /// Authorization: Bearer TOKEN.
    New(NewToken),
}

#[derive(Debug, Args)]
pub struct NewToken {
    #[command(flatten)]
    pub settings: Settings,

    /// A token for sending events to the collector, for `write_tokens`
    #[arg(long)]
    pub write: bool,

    /// Key of an app that the token can read, or write with --write; repeatable
    #[arg(long, value_name = "KEY", required_unless_present = "all_apps")]
    pub app: Vec<String>,

    /// The token can read, or write, every app, including apps added later
    #[arg(long, conflicts_with = "app")]
    pub all_apps: bool,

    /// Expiry: an RFC 3339 instant, or a date, valid to its end in UTC; by default never
    #[arg(long, value_name = "DATE")]
    pub expires: Option<String>,

    /// Name in settings and logs, of a-z, 0-9 and _; by default random
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Health {
    #[command(flatten)]
    pub settings: Settings,

    /// Only check whether the process responds, even if it is not ready, because Kafka is away for example
    #[arg(long)]
    pub live: bool,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Stop once all generated events are attributed and the first rows were shown
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct Conformance {
    /// Shell command that attributes a file of events; by default adtrail itself
    ///
    /// Runs once per case and order, as COMMAND --config CONFIG.toml --out OUT.csv EVENTS.ndjson, and writes the rows
    /// to OUT.csv, by column name. `adtrail replay` is such a command.
    #[arg(long, value_name = "COMMAND")]
    pub engine: Option<String>,

    /// Only these cases, or those in folders of these names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub case: Vec<String>,

    /// Run the .toml files in and below this folder instead of the built-in cases
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Seconds after which a run of the engine is killed and counts as failed
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
