//! Errors of this crate.

use std::path::PathBuf;

use ingest::IngestError;

/// Why the collector cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("{file}: {problem}")]
    Dialect { file: String, problem: String },

    #[error("collect.dialects: the directory cannot be read, {error}: {path:?}")]
    Folder { path: PathBuf, error: std::io::Error },

    #[error("channels: channel {channel:?}: no such dialect, {nearest}: {name:?}")]
    UnknownDialect { channel: Box<str>, name: Box<str>, nearest: String },

    #[error("channels: channel {channel:?}: signature.keys: {problem}")]
    SignatureKey { channel: Box<str>, problem: Box<str> },

    #[error("collect.spool: the directory cannot be used, {error}: {path:?}")]
    Spool { path: PathBuf, error: std::io::Error },

    #[error("collect.spool: another process uses the directory: {path:?}")]
    SpoolInUse { path: PathBuf },

    #[error(transparent)]
    Kafka(#[from] IngestError),

    #[error("the Kafka client of the collector failed for good: {0}")]
    Fatal(String),
}
