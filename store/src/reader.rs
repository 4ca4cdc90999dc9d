//! Reads an app's rows between two times in key order, and their aggregates, from either store.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use attribution::facts::event::{EventTime, Family, Pid, SpreadId, Touch};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::StoreError;
use crate::apps::names;
use crate::apps::record::App;
use crate::embedded::read::parts::{HourlyBytes, Parts};
use crate::embedded::read::snapshot::{EmbeddedReader, EmbeddedRows, EmbeddedView, Order};
use crate::hbase::read::SharedReader;
use crate::hbase::read::newest_first::NewestFirst;
use crate::hbase::read::rows::SharedRows;
use crate::layout::campaign_index::CreditedActivation;
use crate::layout::codec::{fact, fact_record};
use crate::layout::key::RowKey;
use crate::layout::region::Regions;
use crate::layout::stored_row::StoredRow;
use crate::layout::summary_counts::{SummaryKey, Totals};
use crate::outbox::StoredOutbox;

/// Calls the same method of either kind of store.
macro_rules! either {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Self::Embedded($inner) => $call,
            Self::Shared($inner) => $call,
        }
    };
}

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Debug, Clone)]
pub enum Reader {
    Embedded(EmbeddedReader),
    Shared(SharedReader),
}

impl Reader {
    /// Returns a view of the rows. An embedded store gives a snapshot; in a shared store only the rows of one
    /// millisecond are consistent with each other.
    pub fn view(&self) -> View<'_> {
        match self {
            Self::Embedded(reader) => View::Embedded(reader.view()),
            Self::Shared(reader) => View::Shared(reader),
        }
    }

    /// The present regions of an embedded store; `None` for HBase, which has regions of its own.
    pub fn regions(&self) -> Option<Regions> {
        match self {
            Self::Embedded(reader) => Some(reader.regions()),
            Self::Shared(_) => None,
        }
    }

    /// Checks that each pid belongs to the same app in the store and in the settings.
    ///
    /// # Errors
    /// If an app would be shown the rows of another one, or HBase does not answer in time.
    pub fn require_apps(&self, policy: &Policy) -> Result<(), StoreError> {
        let names = either!(self, reader => reader.names()?);
        names::check_app_ids(&names, policy).map(drop)
    }

    /// Stores the keys of new and renamed apps of an embedded store, before any of their rows. The reader must be one of
    /// the writing process. Over HBase, where workers store the keys, this is [`Reader::require_apps`].
    ///
    /// # Errors
    /// See [`Reader::require_apps`]; then nothing is stored.
    pub fn store_app_keys(&self, policy: &Policy) -> Result<(), StoreError> {
        match self {
            Self::Embedded(reader) => reader.store_app_keys(policy),
            Self::Shared(_) => self.require_apps(policy),
        }
    }

    /// Visits all stored touches, in no particular order, also those that have expired and are not removed yet. This
    /// takes as long as reading all of them from disk.
    pub fn scan_touches(&self, scan: &mut TouchScan<'_>) -> Result<(), StoreError> {
        either!(self, reader => reader.scan_touches(scan))
    }

    /// The outbox. In an embedded store it can be changed only through a reader of the writing process.
    pub fn outbox(&self) -> StoredOutbox {
        match self {
            Self::Embedded(reader) => StoredOutbox::Embedded(reader.outbox()),
            Self::Shared(reader) => StoredOutbox::Shared(reader.outbox()),
        }
    }

    /// Returns the value of the current row of each activation or effect, whose records were read before. `None` if it
    /// has none, or if another worker of a shared store has not written it yet.
    pub fn current_rows(
        &self,
        events: &[(FactKey, FactRecord)],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        either!(self, reader => reader.current_rows(events))
    }

    /// All apps that the store knows.
    pub fn apps(&self) -> Result<BTreeMap<Pid, App>, StoreError> {
        match self {
            Self::Embedded(reader) => Ok(reader.apps()),
            Self::Shared(reader) => reader.apps(),
        }
    }

    /// Calls `visit` with the key and value of each row of a [`Reader::view`], `from <= event_time < to`, in key
    /// order, until it breaks.
    pub fn scan_rows(
        &self,
        app: &AppPolicy,
        from: EventTime,
        to: EventTime,
        mut visit: impl FnMut(&RowKey, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let view = self.view();
        let mut rows = view.rows(app, from..to, None)?;
        while let Some((key, value)) = rows.current()? {
            if visit(&key, value).is_break() {
                return Ok(());
            }
            rows.advance();
        }
        Ok(())
    }
}

/// Which touches [`Reader::scan_touches`] decodes, and who gets them.
pub struct TouchScan<'s> {
    pub wants: &'s dyn Fn(Pid, SpreadId) -> bool,
    pub visit: &'s mut dyn FnMut(Touch),
}

impl TouchScan<'_> {
    /// Visits the touch of a fact record, if its campaign is wanted.
    pub(crate) fn visit(&mut self, pid: Pid, record: &[u8]) -> Result<(), StoreError> {
        if !(self.wants)(pid, fact::campaign(record)?) {
            return Ok(());
        }
        if let FactRecord::Touch(touch) = fact_record::decode(Family::Touch, pid, record)? {
            (self.visit)(touch);
        }
        Ok(())
    }
}

/// What [`Reader::view`] returns.
pub enum View<'r> {
    Embedded(EmbeddedView<'r>),
    Shared(&'r SharedReader),
}

impl View<'_> {
    /// The rows of an app in a range of event times, in key order, after the row `after`, whose partition is ignored.
    pub fn rows(
        &self,
        app: &AppPolicy,
        range: Range<EventTime>,
        after: Option<RowKey>,
    ) -> Result<Rows<'_>, StoreError> {
        Ok(match self {
            Self::Embedded(view) => {
                Rows::Embedded(view.rows(Order::OldestFirst, app, range, after)?)
            }
            Self::Shared(reader) => Rows::Shared(Box::new(reader.rows(app.pid, range, after)?)),
        })
    }

    /// The same rows in reverse key order: newest first.
    pub fn rows_newest_first(
        &self,
        app: &AppPolicy,
        range: Range<EventTime>,
    ) -> Result<Rows<'_>, StoreError> {
        Ok(match self {
            Self::Embedded(view) => {
                Rows::Embedded(view.rows(Order::NewestFirst, app, range, None)?)
            }
            Self::Shared(reader) => {
                Rows::SharedNewestFirst(Box::new(reader.rows_newest_first(app.pid, range)?))
            }
        })
    }

    /// Divides a range of event times into consecutive parts whose rows have about `bytes_max` bytes each. `None` for a
    /// shared store, which does not know the sizes.
    pub fn parts(
        &self,
        app: &AppPolicy,
        range: Range<EventTime>,
        bytes_max: u64,
    ) -> Option<Parts<HourlyBytes<'_>>> {
        match self {
            Self::Embedded(view) => Some(view.parts(app, range, bytes_max)),
            Self::Shared(_) => None,
        }
    }

    /// Rows of an app before this time have been removed by retention.
    pub fn oldest(&self, pid: Pid) -> EventTime {
        either!(self, view => view.oldest(pid))
    }

    /// Calls `visit` with the counts of an app's rows between two times in time order, until it breaks. The range is
    /// one of [`crate::layout::summary_counts::whole_quarters`]. A shared store computes the counts from the rows, and
    /// visits the counts of a quarter with many names in several parts.
    pub fn counts(
        &self,
        pid: Pid,
        range: Range<EventTime>,
        visit: impl FnMut(&SummaryKey<'_>, &Totals) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        either!(self, view => view.counts(pid, range, visit))
    }

    /// True if [`View::counts`] reads stored counts instead of rows.
    pub fn has_counts(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    /// The rows of at most `limit` activations that are credited to a campaign, in a range of event times, newest
    /// first, beginning after the activation `after`.
    pub fn credited_activations(
        &self,
        pid: Pid,
        spreadid: SpreadId,
        range: Range<EventTime>,
        after: Option<CreditedActivation>,
        limit: usize,
    ) -> Result<Vec<StoredRow>, StoreError> {
        either!(self, view => view.credited_activations(pid, spreadid, range, after, limit))
    }
}

/// An iterator over rows of an app.
pub enum Rows<'v> {
    Embedded(EmbeddedRows<'v>),
    Shared(Box<SharedRows>),
    SharedNewestFirst(Box<NewestFirst>),
}

impl Rows<'_> {
    /// The row at the iterator's position; `None` after the last.
    #[inline]
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        match self {
            Self::Embedded(rows) => rows.current(),
            Self::Shared(rows) => rows.current(),
            Self::SharedNewestFirst(rows) => rows.current(),
        }
    }

    /// Moves to the next row.
    #[inline]
    pub fn advance(&mut self) {
        match self {
            Self::Embedded(rows) => rows.advance(),
            Self::Shared(rows) => rows.advance(),
            Self::SharedNewestFirst(rows) => rows.advance(),
        }
    }
}

impl Facts for Reader {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        either!(self, reader => reader.records(keys))
    }

    fn records_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Option<FactRecord>>, StoreError> {
        either!(self, reader => reader.records_up_to(keys, bytes_max))
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        either!(self, reader => reader.scan(scans))
    }

    fn consumed_until(&self) -> Option<EventTime> {
        either!(self, reader => reader.consumed_until())
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        either!(self, reader => reader.expiry_floor(pid))
    }
}
