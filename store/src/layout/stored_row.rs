//! A row as it is stored.

use crate::key::RowKey;

/// A row, as it is stored.
pub type StoredRow = (RowKey, Vec<u8>);
