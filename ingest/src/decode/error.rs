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

attribution::named! {
    /// The kinds of bad record, as metrics and dead letters name them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum ErrorCode {
        NotJson = "not_json",
        NotAnObject = "not_an_object",
        MissingField = "missing_field",
        WrongType = "wrong_type",
        BadValue = "bad_value",
        UnknownApp = "unknown_app",
        BadTime = "bad_time",
        TooLate = "too_late",
        TooLarge = "too_large",
        /// Truncated, followed by more, or no Avro of its schema at all.
        NotAvro = "not_avro",
        /// The registry has no schema by the name that the record gives.
        UnknownSchema = "unknown_schema",
        /// The registry's schema of that name cannot be parsed.
        BadSchema = "bad_schema",
    }
}
