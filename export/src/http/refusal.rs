//! Why a request is refused before any handler runs.

use jiff::Timestamp;

/// Why somebody is not let in. No text has anything of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("expected a header Authorization: Bearer adt_…, with a token of whoever runs this")]
    NoToken,
    #[error(
        "expected one header Authorization: Bearer adt_<id>_<secret>, with the whole token as it was \
         handed out"
    )]
    Malformed,
    #[error("this token is not known here; whoever runs this can make another")]
    Unknown,
    #[error("this token has expired, whoever runs this can make another: {0}")]
    Expired(Timestamp),
    #[error("too many downloads of one token are under way, the most are {downloads_max}")]
    Downloads { downloads_max: usize },
}

impl Refusal {
    /// As a label of metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::Malformed | Self::Unknown => "bad_token",
            Self::Expired(_) => "expired",
            Self::Downloads { .. } => "downloads",
        }
    }
}
