//! Columns and their values in a row, independent of the format. Start with `native`, the list of adtrail's columns.

pub(crate) mod channel;
pub(crate) mod field;
pub(crate) mod field_value;
pub(crate) mod native;
pub(crate) mod prop;
pub(crate) mod value;
