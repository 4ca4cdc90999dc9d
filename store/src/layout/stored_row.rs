//! A row as it is stored.

use super::key::RowKey;

/// A row, as it is stored.
pub type StoredRow = (RowKey, Vec<u8>);
