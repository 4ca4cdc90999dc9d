//! The items that a copy of a store transfers, and the interface of both kinds of store to a copy.

use std::collections::BTreeMap;

use attribution::facts::event::{Family, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;

use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::record::App;
use crate::expiry::floor::ExpiryRecords;
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
    /// The outbox record of an event.
    Outbox(Key, Vec<u8>),
}

/// The form in which fact records are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As [`CopyItem::Fact`], for any kind of store.
    Plain,
    /// As [`CopyItem::Column`].
    Columns,
}

/// What a copy needs besides the items.
pub struct Metadata {
    pub apps: BTreeMap<Pid, App>,
    pub names: Names,
    /// Expired state may or may not have been removed, so its cutoffs become the floors of the target.
    pub expiry_floors: ExpiryRecords,
}

/// Receives the items of a store.
pub type Visit<'v> = &'v mut dyn FnMut(CopyItem) -> Result<(), StoreError>;

/// A store as the source or the target of a copy.
pub trait StoreSide {
    fn metadata(&self) -> Result<Metadata, StoreError>;

    /// `None` for HBase, whose positions are the offsets of the consumer group.
    fn positions(&self) -> Result<Option<Vec<Position>>, StoreError>;

    /// Calls `visit` with all facts and outbox records, and with the rows of `apps`. An embedded store leaves out
    /// expired rows.
    fn each(
        &self,
        apps: &BTreeMap<Pid, App>,
        form: Form,
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    fn put_metadata(&mut self, metadata: &Metadata) -> Result<(), StoreError>;

    fn put(&mut self, items: Vec<CopyItem>) -> Result<(), StoreError>;

    /// Completes a target, so that it opens as a store. An embedded store resumes at `positions`.
    fn finish(self: Box<Self>, positions: &[Position], policy: &Policy) -> Result<(), StoreError>;
}
