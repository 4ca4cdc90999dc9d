//! Errors of records that cannot be decoded.

/// A record that cannot be decoded. The message names the field, its location and the allowed values. It never contains
/// a value, because it goes into logs and headers, which must not have device ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    pub code: ErrorCode,
    /// The invalid field; for a member of a map, such as `props.level`.
    pub field: Option<String>,
    pub message: String,
}

impl DecodeError {
    /// Returns an error that concerns no single field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, field: None, message: message.into() }
    }
}

attribution::named! {
    /// The kinds of invalid records, as named in metrics and dead letters.
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
        /// Truncated, followed by further bytes, or not valid Avro for its schema.
        NotAvro = "not_avro",
        /// The registry has no schema with the key in the record.
        UnknownSchema = "unknown_schema",
        /// The registry's schema with that key cannot be used.
        BadSchema = "bad_schema",
        /// The client cannot fetch or decompress the record, so its content is unknown.
        Unreadable = "unreadable",
    }
}
