//! The wire format of a connection: preamble, frames of requests and responses, cell blocks. No I/O. Start with
//! [`frame`].

pub mod cell;
pub mod frame;

/// Bytes that cannot be decoded: the sender does not speak HBase's protocol, or bytes were lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error(
        "the response declares a length of {declared} bytes (prefix as ASCII: {:?}); at most {bytes_max} are accepted",
        (*declared as u32).to_be_bytes().escape_ascii().to_string()
    )]
    TooLong { declared: usize, bytes_max: usize },
    #[error("{part} is truncated")]
    Truncated { part: &'static str },
    #[error("cannot decode {part}: {reason}")]
    Unreadable { part: &'static str, reason: String },
    #[error("the response declares {declared} cells but contains {found}")]
    CellCount { declared: usize, found: usize },
    #[error("{0}")]
    Malformed(&'static str),
}

impl WireError {
    pub(crate) fn unreadable(part: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Unreadable { part, reason: reason.to_string() }
    }
}
