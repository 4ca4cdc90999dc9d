//! Bytes on a connection: the preamble, frames of requests and answers, blocks of cells. All of it
//! takes bytes and gives bytes, and knows no socket.

pub mod cell;
pub mod frame;

/// What another program sent can not be read: it does not speak as HBase does, or bytes were lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error(
        "an answer of {announced} bytes is announced ({:?} as text), at most {most} are taken",
        (*announced as u32).to_be_bytes().escape_ascii().to_string()
    )]
    TooLong { announced: usize, most: usize },
    #[error("{part} is cut off")]
    Cut { part: &'static str },
    #[error("{part} can not be read: {reason}")]
    Unreadable { part: &'static str, reason: String },
    #[error("{announced} cells are announced, {found} came")]
    CellCount { announced: usize, found: usize },
    #[error("{0}")]
    Malformed(&'static str),
}

impl WireError {
    pub(crate) fn unreadable(part: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Unreadable { part, reason: reason.to_string() }
    }
}
