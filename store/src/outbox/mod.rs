//! The outboxes of both kinds of store, behind one type.

pub(crate) mod due_start;
pub(crate) mod stored;

use attribution::facts::event::EventTime;
use attribution::facts::keys::FactKey;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, EndpointId, OutboxRecord};

use crate::StoreError;
use crate::embedded::outbox::EmbeddedOutbox;
use crate::hbase::cluster::Cluster;
use crate::hbase::counts::CountTimes;
use crate::hbase::outbox::SharedOutbox;

/// The outbox of a store.
pub enum StoredOutbox {
    Embedded(EmbeddedOutbox),
    Shared(SharedOutbox<Cluster>),
}

/// Calls the same method of either kind of outbox.
macro_rules! either {
    ($self:ident, $outbox:ident => $call:expr) => {
        match $self {
            Self::Embedded($outbox) => $call,
            Self::Shared($outbox) => $call,
        }
    };
}

impl StoredOutbox {
    /// Like [`Outbox::counts`], but over HBase returns the last count of one of the processes that call this; `None`
    /// before the first one. `owner` is a random number of this process.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn counts_of_all(
        &mut self,
        owner: u64,
        times: CountTimes,
    ) -> Result<Option<Counts>, StoreError> {
        match self {
            Self::Embedded(outbox) => outbox.counts().map(Some),
            Self::Shared(outbox) => outbox.counts_of_all(owner, times),
        }
    }

    /// Like [`StoredOutbox::counts_of_all`], but never counts over HBase.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn last_counts(&mut self) -> Result<Option<Counts>, StoreError> {
        match self {
            Self::Embedded(outbox) => outbox.counts().map(Some),
            Self::Shared(outbox) => outbox.last_counts(),
        }
    }
}

impl Outbox for StoredOutbox {
    type Error = StoreError;

    fn due(
        &mut self,
        endpoint: &EndpointId,
        now: EventTime,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        either!(self, outbox => outbox.due(endpoint, now, limit))
    }

    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        either!(self, outbox => outbox.records_of(events))
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        either!(self, outbox => outbox.next_records(after, limit))
    }

    fn change(
        &mut self,
        events: &[FactKey],
        change: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), StoreError> {
        either!(self, outbox => outbox.change(events, change))
    }

    fn counts(&mut self) -> Result<Counts, StoreError> {
        either!(self, outbox => outbox.counts())
    }
}
