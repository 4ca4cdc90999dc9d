//! Lists entries by their last change, the newest first. Stores keep records in another order, so each page reads a
//! part of them and keeps its newest entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::port::{Filter, Outbox};
use super::record::OutboxEntry;
use crate::facts::event::EventTime;
use crate::facts::keys::FactKey;

/// Number of records that are read at once.
const RECORDS_PER_READ: usize = 1_000;

/// Where a page begins. The default is the first page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Its part begins after the record of this event; `None` for the first part.
    pub part: Option<FactKey>,
    /// The last change and the event of the last entry of the page before, if that is of the same part.
    pub after: Option<(EventTime, FactKey)>,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of entries of a page. They can be a few more, because those of one event that changed together stay
    /// together.
    pub entries: usize,
    /// Number of records of a part. With fewer of them in the store, all entries are in order.
    pub records: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Each with its event.
    pub entries: Vec<(FactKey, OutboxEntry)>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// Returns the newest entries that match the filter, from the cursor on.
///
/// # Errors
/// If the store fails.
pub fn newest<O: Outbox>(
    outbox: &mut O,
    filter: &Filter,
    cursor: Cursor,
    limits: Limits,
) -> Result<Page, O::Error> {
    let after = cursor.after.map(|(changed, event)| (Reverse(changed), event));
    let mut found: BTreeMap<(Reverse<EventTime>, FactKey), Vec<OutboxEntry>> = BTreeMap::new();
    let (mut last, mut read, mut is_cut, mut next) = (cursor.part, 0, false, None);
    loop {
        let records = outbox.next_records(last.as_ref(), RECORDS_PER_READ)?;
        let Some(end) = records.last().map(|record| record.event) else { break };
        last = Some(end);
        read += records.len();
        for record in records {
            let event = record.event;
            for entry in record.entries.into_iter().filter(|entry| filter.allows(event, entry)) {
                let position = (Reverse(entry.changed), event);
                if after.is_none_or(|after| position > after) {
                    found.entry(position).or_default().push(entry);
                }
            }
        }
        while found.len() > limits.entries {
            found.pop_last();
            is_cut = true;
        }
        if read >= limits.records {
            next = Some(Cursor { part: last, after: None });
            break;
        }
    }
    let (mut entries, mut shown) = (Vec::new(), None);
    for ((Reverse(changed), event), of_event) in found {
        if entries.len() >= limits.entries {
            is_cut = true;
            break;
        }
        entries.extend(of_event.into_iter().map(|entry| (event, entry)));
        shown = Some((changed, event));
    }
    if is_cut {
        next = Some(Cursor { part: cursor.part, after: shown });
    }
    Ok(Page { entries, next })
}
