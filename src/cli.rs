//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Ad attribution that you can check: clicks, activations and effects come in from Kafka, each
/// activation is credited to the ad that caused it, and the rows are downloaded as CSV.
#[derive(Debug, Parser)]
#[command(name = "adtrail", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// How logs are written to standard error
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
    /// Read Kafka and attribute, into a store that processes share (store.kind = "hbase")
    ///
    /// As many as wanted, on any machines: they are members of the consumer group kafka.group, which
    /// gives each its partitions.
    Attribute(Settings),
    /// Serve CSV from a store that processes share (store.kind = "hbase"); as many as wanted
    Export(Settings),
    /// Look after the tables of a store in HBase
    #[command(subcommand, name = "hbase")]
    HBase(HBase),
    /// Move a store into an empty one: from files into HBase, or the other way round
    ///
    /// Nothing may read Kafka for either meanwhile. All facts, decisions and rows are put there as they are, read
    /// back and compared; Kafka's positions go with them. The source stays as it is. On standard output is a
    /// line for each table.
    Copy(Copy),
    /// Show all of it with made-up traffic: broker, attribution and CSV in one process
    Demo(Demo),
    /// Write an app's rows as CSV or JSON lines, without the service or beside it
    ///
    /// At the end standard error has how many rows and bytes were written, and their SHA-256, as
    /// sha256sum prints it.
    Download(Box<Download>),
    /// Tell why an activation is credited as it is, without the service or beside it
    ///
    /// Each reason names its section of the attribution contract, which is docs/contract.md in the
    /// source.
    Explain(Explain),
    /// Attribute the events of files, without Kafka and without a server
    ///
    /// Files may be compressed with gzip or zstd, whatever their names; standard input too. One
    /// that is cut short or damaged ends the command, and no row is written.
    ///
    /// Lines that are no events are named on standard error and left out. The rows of all others
    /// are written; then the command ends with 1, so that a script can tell.
    Replay(Replay),
    /// Show what a topic holds, a line of JSON for each record, decoded as the service does
    ///
    /// Each line has partition, offset, time (the broker's, in UTC), key, schema and event; what
    /// the service would not take has error (code, field, message) and its value, a dead letter
    /// what was noted of it. Bytes that are no UTF-8 text are {"base64": …}. All partitions are
    /// read, each in order, up to the end that the topic has now. Nothing is changed in Kafka.
    Peek(Peek),
    /// Send the dead letters of a topic again to where they came from, each once
    ///
    /// TOPIC is read from its beginning to the end that it has now. Each letter goes to the topic
    /// that it came from, with key, value and headers as they were. What was sent is noted in
    /// TOPIC.replayed, in the same transaction: a second run sends only what came since or was not
    /// chosen, also after this one was killed.
    ///
    /// On standard output is CSV, a line for each code and topic: code, topic, letters, sent (with
    /// --dry-run would_send), sent_before, repeated (second letters of one record), filtered, left
    /// (they are no letters of a configured topic; without code and topic). The command ends with
    /// 1 if Kafka does not take them all.
    #[command(name = "replay-dlq")]
    ReplayDlq(ReplayDlq),
    /// Show the regions of the store: rows, bytes, and how busy each is
    ///
    /// Beside a running service too, as of its last commit. A region is a range of row keys; how
    /// regions come to be, and what to do where one is much larger or busier than the others, is
    /// told in docs/regions.md in the source.
    Regions(Regions),
    /// Put a copy of the store, as it is now, into a directory of backups; the service may run
    ///
    /// All that was committed when the command began is in it. Files that an earlier backup in DIR
    /// has are not copied again. On standard output is one line of JSON: backup (its number), time,
    /// rows, positions (next offsets by topic and partition), files, bytes, and of these new_files
    /// and new_bytes. There is the whole backup in DIR, or none of it.
    Backup(Backup),
    /// Make a store out of a backup, where the settings have their store
    ///
    /// The directory store.path must be empty or missing. Each file is compared with what was kept.
    /// `adtrail run` then goes on from the positions of the backup. On standard output is the line of
    /// the backup, as when it was taken.
    Restore(Restore),
    /// Look through the store for damage, and write anew what is derived
    ///
    /// Every file reads, every fact is found, every decision is the one that a fresh look makes,
    /// every row is what was decided, and every count is that of the rows. Beside a running
    /// service too, as of its last commit. On standard output is a line for each kind of check,
    /// then what is wrong. The command ends with 1 if anything is. More is told in docs/verify.md
    /// in the source.
    Verify(Verify),
    /// Check the settings, and name what is wrong with them
    CheckConfig(Settings),
    /// Let somebody read apps over HTTP
    #[command(subcommand)]
    Token(Token),
    /// Run the cases of the attribution contract on adtrail or on any other engine
    ///
    /// Each case is run in four orders of arrival: as given, reversed, and each with all events
    /// delivered again. One line for each case that fails, then one with the counts; the command
    /// ends with 1 if any failed.
    Conformance(Conformance),
}

#[derive(Debug, Args)]
pub struct Settings {
    /// Settings file; without it `adtrail.toml`, if there is one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// One setting, before file and environment; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct Copy {
    /// Settings of the store that there is
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,

    /// Settings of the one that it is moved into: an empty directory, or tables that `adtrail hbase init` made
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum HBase {
    /// Make the tables that are missing, and tell how the others differ from what the settings would make
    ///
    /// On standard output is a line for each table, and one for each difference, with the line of HBase's
    /// shell that takes it away. Nothing that is there is changed. The command ends with 1 if anything
    /// differs.
    Init(InitHBase),
}

#[derive(Debug, Args)]
pub struct InitHBase {
    #[command(flatten)]
    pub settings: Settings,

    /// Make nothing, and tell what would be made
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token, and the entry of the settings that lets it in
    ///
    /// On standard output is the token, an empty line, and the entry for `tokens`, with the token's
    /// hash, from which nobody can make the token. Nothing is kept and no setting is changed. Put the
    /// entry into the settings and start the service anew; give the token to whoever is to send it,
    /// as Authorization: Bearer TOKEN.
    New(NewToken),
}

#[derive(Debug, Args)]
pub struct NewToken {
    #[command(flatten)]
    pub settings: Settings,

    /// Key of an app that the token shows; repeatable
    #[arg(long, value_name = "KEY", required_unless_present = "all_apps")]
    pub app: Vec<String>,

    /// It shows every app, those of later settings too
    #[arg(long, conflicts_with = "app")]
    pub all_apps: bool,

    /// When it ends: an RFC 3339 instant, or a date, to whose end in UTC it is good; without it never
    #[arg(long, value_name = "DATE")]
    pub expires: Option<String>,

    /// Its name in the settings and in logs, of a-z, 0-9 and _; without it a random one
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Stop when all made-up events are attributed and the first rows were shown
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct Download {
    #[command(flatten)]
    pub settings: Settings,

    /// The app's key
    #[arg(long, value_name = "KEY")]
    pub app: String,

    /// First event time: an RFC 3339 instant, or a local date or date-time
    #[arg(long, value_name = "TIME")]
    pub from: String,

    /// End of event times, exclusive; a date includes that whole day
    #[arg(long, value_name = "TIME")]
    pub to: String,

    /// IANA name of the time zone of times without an offset, and of the times shown
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub timezone: String,

    /// Rows to write
    #[arg(long = "type", value_name = "all|activation|effect", default_value = "all")]
    pub event_type: String,

    /// Only events of these names; activations are called activation
    #[arg(long = "event_name", alias = "event-name", value_name = "NAME,…")]
    pub event_name: Vec<String>,

    /// Only rows of these: attributed, organic, unattributed, rejected, duplicate, orphan
    #[arg(long, value_name = "STATUS,…")]
    pub status: Vec<String>,

    /// Only rows that these channels are credited with
    #[arg(long, value_name = "CHANNEL,…")]
    pub channel: Vec<String>,

    /// Only rows that these campaigns are credited with; 0: no campaign
    #[arg(long, value_name = "SPREADID,…")]
    pub spreadid: Vec<String>,

    /// Only rows of these: install, reinstall, duplicate
    #[arg(long = "install_type", alias = "install-type", value_name = "TYPE,…")]
    pub install_type: Vec<String>,

    /// Whose columns to write
    #[arg(long, value_name = "native|appsflyer", default_value = "native")]
    pub preset: String,

    /// More columns of AppsFlyer's, by their names in its API
    #[arg(long = "additional_fields", alias = "additional-fields", value_name = "NAME,…")]
    pub additional_fields: Vec<String>,

    /// Columns to write, in this order; without it all
    #[arg(long, value_name = "COLUMN,…")]
    pub fields: Option<String>,

    /// CSV with a line of names, or a line of JSON for each row
    #[arg(long, value_name = "csv|ndjson", default_value = "csv")]
    pub format: Format,

    /// CSV for programs, or for Excel and LibreOffice
    #[arg(long, value_name = "data|excel", default_value = "data")]
    pub dialect: String,

    /// Rows to write at most
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<String>,

    /// Where a page before ended, from the Link of the API's answer
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,

    /// File to write; without it standard output
    ///
    /// Until it is whole, the rows are in FILE.part.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Go on with what a download before left of FILE, with the same other options
    ///
    /// What is there is compared with the rows as they are now, and kept as far as it is the same: in
    /// the end FILE is what a new download would have made of it. A file that is of something else is
    /// left as it is, and the command ends with 2.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Format {
    Csv,
    Ndjson,
}

#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub settings: Settings,

    /// The app's key
    #[arg(long, value_name = "KEY")]
    pub app: String,

    /// The activation's event id, as its row shows it
    #[arg(long, value_name = "EVENT_ID")]
    pub activation: String,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Files to attribute and look into, instead of the store, as with replay
    #[arg(value_name = "EVENTS.ndjson")]
    pub events: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub settings: Settings,

    /// Files with one JSON event a line, plain, gzip or zstd; `-` reads standard input
    #[arg(required = true, value_name = "EVENTS.ndjson")]
    pub events: Vec<PathBuf>,

    /// File to write; without it standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Only this app's rows; without it those of all apps, by pid
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Other settings, to see what they would change: instead of all rows, those that they
    /// decide differently
    ///
    /// The events are attributed by both, and written are the rows of which something is
    /// different, old beside new: app, event_type, event_name, event_time, event_id; then, each
    /// as old_… and new_…, status, install_type, spreadid, campaign, channel, match_type,
    /// touch_type, touch_time, click_id, reject_reason; then revenue and currency. Apps go by
    /// their keys; an app that one side does not have leaves that side's cells empty. Environment
    /// and --set count for both. A table of the campaigns that gain or lose goes to standard
    /// error.
    #[arg(long, value_name = "OTHER_CONFIG")]
    pub diff: Option<PathBuf>,

    /// CSV file to write: activations and effects of each campaign, old and new
    ///
    /// All campaigns are in it, those that do not change too; spreadid 0 is what no campaign is
    /// credited with. Revenue is not summed: rows have it with its currency.
    #[arg(long, value_name = "FILE", requires = "diff")]
    pub totals: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Peek {
    #[command(flatten)]
    pub settings: Settings,

    /// Any topic: of events, of dead letters, or another
    #[arg(value_name = "TOPIC", value_parser = topic)]
    pub topic: String,

    /// Only what is produced from now on; waits for it until interrupted
    #[arg(long, conflicts_with = "from_time")]
    pub at_end: bool,

    /// Only what the broker received then or later: an RFC 3339 instant, or a date or date-time in
    /// UTC
    #[arg(long, value_name = "TIME", value_parser = instant_ms)]
    pub from_time: Option<i64>,

    /// End after so many records
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// The value as it is and the headers, instead of the event
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct ReplayDlq {
    #[command(flatten)]
    pub settings: Settings,

    /// Topic of dead letters, such as adtrail.clicks.dlq
    #[arg(value_name = "TOPIC", value_parser = topic)]
    pub topic: String,

    /// Only letters with this adtrail.error.code; repeatable
    #[arg(long, value_name = "CODE")]
    pub filter: Vec<String>,

    /// Count what would be sent, and send nothing
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

    /// Show them again every so many seconds, until interrupted
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

    /// Directory of the backups of one store; made if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Remove all but the N newest backups, once this one is whole
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

    /// The backup's number; without it the newest
    #[arg(long, value_name = "ID")]
    pub backup: Option<u32>,

    /// Restore nothing, and write the lines of all backups, oldest first
    #[arg(long, conflicts_with = "backup")]
    pub list: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub settings: Settings,

    /// Write anew what is derived from facts, where it is damaged; the service must be stopped
    ///
    /// No fact is changed. Where a file is damaged nothing is written: restore a backup.
    #[arg(long)]
    pub repair: bool,

    /// Settings of attribution have changed since: that a decision would be another one now is no
    /// damage
    #[arg(long)]
    pub settings_changed: bool,

    /// Name all that is wrong, not only the first 10 of each kind
    #[arg(long)]
    pub all: bool,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Conformance {
    /// Command of the shell that attributes a file of events; without it adtrail itself
    ///
    /// It is run once per case and order, as COMMAND --config CONFIG.toml --out OUT.csv
    /// EVENTS.ndjson, and writes the rows to OUT.csv, by column name. `adtrail replay` is one.
    #[arg(long, value_name = "COMMAND")]
    pub engine: Option<String>,

    /// Only these cases, or those in a folder of this name
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub case: Vec<String>,

    /// Cases to run instead of the built-in ones: the .toml files in this folder and below
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Seconds after which one run of the engine's command is ended and counts as failed
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

fn instant_ms(text: &str) -> Result<i64, String> {
    let instant = text.parse::<Timestamp>().or_else(|_| {
        let local = text.parse::<DateTime>()?;
        local.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let expected = "expected an RFC 3339 instant such as 2026-03-10T08:00:00Z, or a date or \
                    date-time such as 2026-03-10T08:00 in UTC";
    let millis = instant.map(Timestamp::as_millisecond).map_err(|_| expected.to_owned())?;
    if millis < 0 { Err("expected a time from 1970 on".to_owned()) } else { Ok(millis) }
}

/// By Kafka's own rule.
fn topic(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = (1..=249).contains(&text.len())
        && text.chars().all(is_allowed)
        && !matches!(text, "." | "..");
    let expected = "expected a topic's name of 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'";
    if is_name { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn times_are_instants_or_in_utc() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(super::instant_ms(text).ok(), expected, "{text}");
        };
        check("2025-03-10T12:00:00Z", Some(1_741_608_000_000));
        check("2025-03-10T20:00:00.001+08:00", Some(1_741_608_000_001));
        check("2025-03-10T12:00", Some(1_741_608_000_000));
        check("2025-03-10", Some(1_741_564_800_000));
        check("1969-12-31T23:59:59.999Z", None);
        check("yesterday", None);
        check("", None);
    }
}
