//! Options of the commands that read files of events, or write rows and explanations.

use std::path::PathBuf;

use clap::Args;

use super::Settings;

#[derive(Debug, Args)]
pub struct Download {
    #[command(flatten)]
    pub settings: Settings,

    /// Key of the app
    #[arg(long, value_name = "KEY")]
    pub app: String,

    /// First event time: an RFC 3339 instant, or a local date or date-time
    #[arg(long, value_name = "TIME")]
    pub from: String,

    /// End of event times, exclusive; a date includes that whole day
    #[arg(long, value_name = "TIME")]
    pub to: String,

    /// Time zone of times without an offset, and of the times written: an IANA name such as Asia/Shanghai, or an
    /// offset such as +08:00
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    pub timezone: String,

    /// Type of the rows
    #[arg(long = "type", value_name = "all|activation|effect", default_value = "all")]
    pub event_type: String,

    /// Only events with these names; the name of activations is activation
    #[arg(long = "event_name", alias = "event-name", value_name = "NAME,…")]
    pub event_name: Vec<String>,

    /// Only rows with these statuses: attributed, organic, unattributed, rejected, duplicate, orphan
    #[arg(long, value_name = "STATUS,…")]
    pub status: Vec<String>,

    /// Only rows credited to these channels
    #[arg(long, value_name = "CHANNEL,…")]
    pub channel: Vec<String>,

    /// Only rows credited to these campaigns; 0: no campaign
    #[arg(long, value_name = "SPREADID,…")]
    pub spreadid: Vec<String>,

    /// Only rows with these install types: install, reinstall, duplicate
    #[arg(long = "install_type", alias = "install-type", value_name = "TYPE,…")]
    pub install_type: Vec<String>,

    /// Set of columns
    #[arg(long, value_name = "native|appsflyer", default_value = "native")]
    pub preset: String,

    /// Additional AppsFlyer columns, by their API names
    #[arg(long = "additional_fields", alias = "additional-fields", value_name = "NAME,…")]
    pub additional_fields: Vec<String>,

    /// Columns to write, in this order; by default all
    #[arg(long, value_name = "COLUMN,…")]
    pub fields: Option<String>,

    /// CSV with a header line, or a line of JSON for each row
    #[arg(long, value_name = "csv|ndjson", default_value = "csv")]
    pub format: Format,

    /// CSV for programs, or for Excel and LibreOffice
    #[arg(long, value_name = "data|excel", default_value = "data")]
    pub dialect: String,

    /// Maximum number of rows
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<String>,

    /// Continue after the previous page: the cursor from the Link header of the API
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,

    /// File to write; by default standard output
    ///
    /// Until it is complete, the rows are in FILE.part.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Resume an interrupted download of FILE; all other options must match
    ///
    /// Compares what is there with the current rows, and rewrites it from the first difference: the result is what a
    /// new download would write. A file of another export is left unchanged, and the command exits with 2.
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

    /// Key of the app
    #[arg(long, value_name = "KEY")]
    pub app: String,

    /// Event id of the activation, as in its row
    #[arg(long, value_name = "EVENT_ID")]
    pub activation: String,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Files of events to attribute instead of reading the store, as with replay
    #[arg(value_name = "EVENTS.ndjson")]
    pub events: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub settings: Settings,

    /// Files with one JSON event a line, plain, gzip or zstd; `-` is standard input
    #[arg(required = true, value_name = "EVENTS.ndjson")]
    pub events: Vec<PathBuf>,

    /// File to write; by default standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Only the rows of this app; by default those of all apps, by pid
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Write the rows that these other settings decide differently, instead of all rows
    ///
    /// The events are attributed under both settings. Columns: app, event_type, event_name, event_time, event_id; then,
    /// each as old_… and new_…, status, install_type, spreadid, campaign, channel, match_type, touch_type, touch_time,
    /// click_id, reject_reason; then revenue and currency. Apps are matched by key; the cells of a side without the app
    /// are empty. Environment and --set apply to both. A table of the campaigns that gain or lose goes to standard
    /// error.
    #[arg(long, value_name = "OTHER_CONFIG")]
    pub diff: Option<PathBuf>,

    /// CSV file to write: activations and effects of each campaign, old and new
    ///
    /// Contains all campaigns, including unchanged ones; spreadid 0 counts what is credited to no campaign. Revenue is
    /// not summed, since currencies may differ.
    #[arg(long, value_name = "FILE", requires = "diff")]
    pub totals: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CheckEvents {
    #[command(flatten)]
    pub settings: Settings,

    /// Files with one JSON event a line, plain, gzip or zstd; `-` is standard input
    #[arg(required = true, value_name = "EVENTS.ndjson")]
    pub events: Vec<PathBuf>,

    /// JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Also show the first value of each problem, which may be a device id
    #[arg(long)]
    pub show_values: bool,
}
