//! Options of the commands on callbacks.

use clap::{Args, Subcommand};

use super::Settings;

#[derive(Debug, Subcommand)]
pub enum Callbacks {
    /// List callbacks as lines of JSON: what was sent, what is pending, and what failed and why
    ///
    /// Also works beside a running service, as of its last commit. Callbacks are listed for at least seven days after
    /// their last change, in no particular order. Lines have no device ids and no tokens.
    List(ListCallbacks),
    /// Show the callbacks about one event, with the last request and response of each
    ///
    /// Device ids, tokens and signatures are replaced by "hidden".
    Show(ShowCallbacks),
    /// Try dead callbacks again, or pending ones before they are due
    ///
    /// If a service uses the store, it makes the change. Writes the number of callbacks to standard output; they are
    /// sent within seconds, dead ones and those that were too old whatever their age. Pending ones that are due within
    /// two minutes stay as they are.
    Retry(RetryCallbacks),
    /// Send one request to an endpoint, and show the response
    ///
    /// Without an event, sends a made-up one, whose event id begins with "adtrail-test-"; ad networks refuse its token.
    /// Networks that get callbacks at the URL of a click need --callback. The outbox is not changed. Exits with 1
    /// unless the endpoint takes it.
    Test(TestCallback),
}

#[derive(Debug, Args)]
pub struct ListCallbacks {
    #[command(flatten)]
    pub settings: Settings,

    /// Only callbacks to this endpoint, which may have left the settings
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,

    /// Only callbacks about events of the app with this key
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Only callbacks of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,

    /// Only callbacks in this state: pending, sent, dropped, withheld, too_old or dead
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,

    /// Stop after N callbacks
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,

    /// One line for each endpoint instead, with the number of callbacks by state
    #[arg(long, conflicts_with_all = ["app", "kind", "state", "limit"])]
    pub counts: bool,
}

#[derive(Debug, Args)]
pub struct ShowCallbacks {
    #[command(flatten)]
    pub settings: Settings,

    /// Key of the app
    #[arg(long, value_name = "KEY")]
    pub app: String,

    #[command(flatten)]
    pub event: Event,
}

#[derive(Debug, Args)]
pub struct RetryCallbacks {
    #[command(flatten)]
    pub settings: Settings,

    /// Only callbacks to this endpoint
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,

    /// Only callbacks about events of the app with this key
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Only callbacks about this activation of the app
    #[arg(long, value_name = "ID", requires = "app")]
    pub activation: Option<String>,

    /// Only callbacks about this effect of the app
    #[arg(long, value_name = "ID", requires = "app", conflicts_with = "activation")]
    pub effect: Option<String>,

    /// Only callbacks of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,

    /// Which callbacks to try again: dead, too_old or pending
    #[arg(
        long,
        value_name = "STATE",
        default_value = "dead",
        value_parser = ["dead", "too_old", "pending"]
    )]
    pub state: String,
}

#[derive(Debug, Args)]
pub struct TestCallback {
    #[command(flatten)]
    pub settings: Settings,

    /// Name of the endpoint
    #[arg(value_name = "ENDPOINT")]
    pub endpoint: String,

    /// Kind of the callback; by default the first one that the endpoint gets
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,

    /// Key of the app; by default the first one of the endpoint
    #[arg(long, value_name = "KEY")]
    pub app: Option<String>,

    /// Send this activation of the app, as it is stored
    #[arg(long, value_name = "ID", requires = "app")]
    pub activation: Option<String>,

    /// Send this effect of the app, as it is stored
    #[arg(long, value_name = "ID", requires = "app", conflicts_with = "activation")]
    pub effect: Option<String>,

    /// Token or URL of the made-up event, as a click of the network has it
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["activation", "effect"])]
    pub callback: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Event {
    /// Id of the activation
    #[arg(long, value_name = "ID")]
    pub activation: Option<String>,

    /// Id of the effect
    #[arg(long, value_name = "ID")]
    pub effect: Option<String>,
}
