//! Errors of this crate.

use std::path::PathBuf;

/// Why callbacks cannot be sent at all. What becomes of a single one is an [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    #[error("{file}: {problem}")]
    Preset { file: String, problem: String },

    #[error("callbacks.presets: the directory cannot be read, {error}: {path:?}")]
    Folder { path: PathBuf, error: std::io::Error },

    #[error("callbacks.endpoint: endpoint {endpoint:?}: no such preset, {nearest}: {name:?}")]
    UnknownPreset { endpoint: Box<str>, name: Box<str>, nearest: String },

    #[error("callbacks.endpoint: endpoint {endpoint:?}: {problem}")]
    Endpoint { endpoint: Box<str>, problem: String },

    #[error("the HTTP client of callbacks cannot be built: {0}")]
    Client(#[source] reqwest::Error),

    #[error("a task of callbacks failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
