//! Why there is no export, or not all of one.

use std::borrow::Cow;

use store::StoreError;

/// Each message names the parameter and what it may be, where one is to blame.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{parameter} is missing, expected {}", .allowed.join(", or "))]
    MissingParameter { parameter: &'static str, allowed: &'static [&'static str] },

    #[error("{parameter}: {problem}: {value:?}")]
    BadParameter {
        parameter: &'static str,
        problem: Cow<'static, str>,
        value: Box<str>,
        allowed: Vec<&'static str>,
    },

    #[error("{parameter} is given more than once")]
    RepeatedParameter { parameter: &'static str },

    #[error("unknown parameter, known are {}: {parameter:?}", list(known))]
    UnknownParameter { parameter: Box<str>, known: &'static [&'static str] },

    #[error("no report has this name, known are {known}: {report:?}")]
    UnknownReport { report: Box<str>, known: String },

    #[error("no app has this key: {0:?}")]
    UnknownApp(Box<str>),

    #[error("no activation of the app has this id: {0:?}")]
    UnknownActivation(Box<str>),

    /// Only the last ones are kept, until the service ends.
    #[error("no export has this id, or not any more: {0:?}")]
    UnknownExport(Box<str>),

    /// Try again later.
    #[error("too many downloads are under way, the most are {scans_max}")]
    Busy { scans_max: usize },

    /// The rows could not be read; part of them may have been sent.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// Try again later.
    #[error("no thread can be started to read the rows: {0}")]
    NoThread(std::io::Error),

    /// The scan ended without saying so, or nobody took its rows for too long.
    #[error("the download broke off")]
    BrokenOff,
}

fn list(known: &[&str]) -> String {
    if known.is_empty() { "none".into() } else { known.join(", ") }
}
