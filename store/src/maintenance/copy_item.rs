//! The items that a copy of a store transfers.

use attribution::facts::event::Family;

use crate::layout::key::{Key, RowKey};

/// An item to copy. Values are in the encoding of an embedded store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyItem {
    /// A fact record or an index entry.
    Fact(Family, Key, Vec<u8>),
    /// A column of a fact record's row, from one HBase to another. This includes the replaced rows and facts by which
    /// another worker completes an interrupted batch.
    Column(Family, Key, Vec<u8>, Vec<u8>),
    Row(RowKey, Vec<u8>),
}

/// The form in which fact records are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As [`CopyItem::Fact`], for any kind of store.
    Plain,
    /// As [`CopyItem::Column`].
    Columns,
}
