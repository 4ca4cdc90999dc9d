//! Why an export failed or is incomplete.

use std::borrow::Cow;

use store::StoreError;

use crate::Echo;

/// Errors of requests. A message names the parameter and its allowed values, if a parameter is at fault.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{parameter} is missing, expected {}", .allowed.join(", or "))]
    MissingParameter { parameter: &'static str, allowed: &'static [&'static str] },

    #[error("{parameter}: {problem}: {value:?}")]
    BadParameter {
        parameter: &'static str,
        problem: Cow<'static, str>,
        value: Echo,
        allowed: Vec<&'static str>,
    },

    #[error("{parameter} is given more than once")]
    RepeatedParameter { parameter: &'static str },

    #[error("unknown parameter (allowed: {}): {parameter:?}", list(known))]
    UnknownParameter { parameter: Echo, known: &'static [&'static str] },

    #[error("no report has this name (allowed: {known}): {report:?}")]
    UnknownReport { report: Echo, known: String },

    #[error("no app has this key: {0:?}")]
    UnknownApp(Echo),

    #[error("no activation of the app has this id: {0:?}")]
    UnknownActivation(Echo),

    /// Only the latest exports are kept, and only until the service ends.
    #[error("no export with this id, or it is no longer kept: {0:?}")]
    UnknownExport(Echo),

    /// Try again later.
    #[error("too many downloads are in progress, the limit is {scans_max}")]
    Busy { scans_max: usize },

    /// Try again later.
    #[error("too many answers to one token are in progress, the limit is {answers_max}")]
    BusyToken { answers_max: usize },

    /// Try again later.
    #[error("too many answers are in progress, the limit is {answers_max}")]
    BusyAnswers { answers_max: usize },

    /// The rows could not be read; part of them may have been sent.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// Try again later.
    #[error("cannot start a thread to read the rows: {0}")]
    NoThread(std::io::Error),

    /// The scan ended without a result, or the client took no rows for too long.
    #[error("the download was interrupted")]
    BrokenOff,
}

fn list(known: &[&str]) -> String {
    if known.is_empty() { "none".into() } else { known.join(", ") }
}
