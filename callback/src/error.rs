//! Errors of this crate.

use std::path::PathBuf;

use config::Location;

/// Why callbacks cannot be sent at all. What becomes of a single one is an [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    #[error("{file}: {problem}")]
    Preset { file: String, problem: String },

    #[error("callbacks.presets: the directory cannot be read, {error}: {path:?}")]
    Folder { path: PathBuf, error: std::io::Error },

    /// All wrong endpoints, displayed one per line; never empty.
    #[error("{}", lines(.0))]
    Endpoints(Vec<EndpointError>),

    #[error("the HTTP client of callbacks cannot be built: {0}")]
    Client(#[source] reqwest::Error),

    #[error("a thread for the outbox of callbacks cannot be prepared: {0}")]
    Thread(#[source] std::io::Error),

    #[error("a task of callbacks failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What is wrong with an endpoint of the settings. The problem begins with the key of its table.
#[derive(Debug, thiserror::Error)]
#[error("{location}: callbacks.endpoint[{index}].{problem}")]
pub struct EndpointError {
    pub location: Location,
    /// Its number among the endpoints of its file, from 0.
    pub index: usize,
    pub problem: String,
}

fn lines(errors: &[EndpointError]) -> String {
    let lines: Vec<String> = errors.iter().map(EndpointError::to_string).collect();
    lines.join("\n")
}
