//! Why a request is refused: by the gate, by the check of the host, by the limit of downloads, or as a form of another
//! site.

use jiff::Timestamp;

use super::audit::NONE;

/// A refusal for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denial<'a> {
    pub refusal: Refusal,
    /// The id of the configured token that the request names, or [`NONE`].
    pub token: &'a str,
}

/// Why a request is refused. No message contains anything that the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("expected a header Authorization: Bearer adt_…, with a token from the operator")]
    NoToken,
    #[error(
        "expected one header Authorization: Bearer adt_<id>_<secret>, with the whole token as it was issued"
    )]
    Malformed,
    #[error("unknown token; ask the operator for a new one")]
    Unknown,
    #[error("this token has expired, ask the operator for a new one: {0}")]
    Expired(Timestamp),
    #[error("this session has ended; sign in again")]
    Session,
    #[error("expected a form submitted from this service's own page")]
    Origin,
    #[error(
        "the host of this request is not served: expected localhost, a loopback address, the address of the \
         listener, or a name of export.allowed_hosts"
    )]
    Host,
    #[error("too many downloads of one token are in progress, the limit is {downloads_max}")]
    Downloads { downloads_max: usize },
}

impl Refusal {
    /// Returns the label `reason` of the metric.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::Malformed | Self::Unknown => "bad_token",
            Self::Expired(_) => "expired",
            Self::Session => "session",
            Self::Origin => "origin",
            Self::Host => "host",
            Self::Downloads { .. } => "downloads",
        }
    }
}

impl From<Refusal> for Denial<'_> {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, token: NONE }
    }
}
