//! A row in its stored form.

use super::key::RowKey;

/// The key and the encoded value of a row.
pub type StoredRow = (RowKey, Vec<u8>);
