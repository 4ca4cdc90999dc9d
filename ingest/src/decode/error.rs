//! Why a record is no fact.

/// A record that cannot be decoded. The message names field, place and what is allowed, and
/// never repeats a value: it goes to logs and headers, where device ids have no business.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    pub code: ErrorCode,
    /// The field at fault, a member of a map as `props.level`.
    pub field: Option<String>,
    pub message: String,
}

/// The kinds of bad record, as metrics and dead letters name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorCode {
    NotJson,
    NotAnObject,
    MissingField,
    WrongType,
    BadValue,
    UnknownApp,
    BadTime,
    TooLate,
    TooLarge,
    /// Truncated, followed by more, or no Avro of its schema at all.
    NotAvro,
    /// The registry has no schema by the name that the record gives.
    UnknownSchema,
    /// What the registry has by that name can not be read.
    BadSchema,
}

impl ErrorCode {
    pub const ALL: [Self; 12] = [
        Self::NotJson,
        Self::NotAnObject,
        Self::MissingField,
        Self::WrongType,
        Self::BadValue,
        Self::UnknownApp,
        Self::BadTime,
        Self::TooLate,
        Self::TooLarge,
        Self::NotAvro,
        Self::UnknownSchema,
        Self::BadSchema,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingField => "missing_field",
            Self::WrongType => "wrong_type",
            Self::BadValue => "bad_value",
            Self::UnknownApp => "unknown_app",
            Self::BadTime => "bad_time",
            Self::TooLate => "too_late",
            Self::TooLarge => "too_large",
            Self::NotAvro => "not_avro",
            Self::UnknownSchema => "unknown_schema",
            Self::BadSchema => "bad_schema",
        }
    }
}
