//! What a copy of a store is made of.

use attribution::facts::event::Family;

use crate::layout::key::{Key, RowKey};

/// What moves; values are as an embedded store has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyItem {
    /// A home or an entry that leads to one.
    Fact(Family, Key, Vec<u8>),
    /// A column of a home's row, from one HBase to another: what a worker has begun and another is to end goes
    /// with it.
    Column(Family, Key, Vec<u8>, Vec<u8>),
    Row(RowKey, Vec<u8>),
}

/// How homes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As [`CopyItem::Fact`], which either kind of store can take.
    Plain,
    /// As [`CopyItem::Column`].
    Columns,
}
