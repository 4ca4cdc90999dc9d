//! Rows written as text.

pub(crate) mod channel;
pub(crate) mod field;
pub(crate) mod field_value;
