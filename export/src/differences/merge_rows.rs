//! The rows of one millisecond of a store, and those of two stores in pairs.

use std::ops::Range;

use attribution::facts::event::EventTime;
use attribution::rules::policy::AppPolicy;
use store::StoreError;
use store::layout::key::RowKey;
use store::reader::{Rows, View};

/// Reads an app's rows a millisecond at a time, and buffers only the rows of that millisecond.
pub struct MillisecondReader<'r> {
    /// `None` if this side does not have the app.
    rows: Option<Rows<'r>>,
    keys: Vec<(RowKey, Range<usize>)>,
    /// The values, concatenated.
    values: Vec<u8>,
}

pub type StoredRow<'a> = (&'a RowKey, &'a [u8]);

/// The rows of one event; at least one exists.
pub struct Pair<'a> {
    pub old: Option<StoredRow<'a>>,
    pub new: Option<StoredRow<'a>>,
}

impl<'r> MillisecondReader<'r> {
    pub fn new(view: &'r View<'_>, app: Option<&AppPolicy>) -> Result<Self, StoreError> {
        let rows = app
            .map(|app| view.rows(app, EventTime::default()..EventTime::END, None))
            .transpose()?;
        Ok(Self { rows, keys: Vec::new(), values: Vec::new() })
    }

    /// Returns the event time of the next row.
    pub fn next_time(&mut self) -> Result<Option<EventTime>, StoreError> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        Ok(rows.current()?.map(|(key, _)| key.event_time))
    }

    /// Buffers the rows of this time, in key order, and drops those buffered before.
    pub fn read(&mut self, time: EventTime) -> Result<(), StoreError> {
        self.keys.clear();
        self.values.clear();
        let Some(rows) = &mut self.rows else { return Ok(()) };
        while let Some((key, value)) = rows.current()?.filter(|(key, _)| key.event_time == time) {
            let start = self.values.len();
            self.values.extend_from_slice(value);
            self.keys.push((key, start..self.values.len()));
            rows.advance();
        }
        Ok(())
    }

    fn row(&self, index: usize) -> Option<StoredRow<'_>> {
        let (key, value) = self.keys.get(index)?;
        Some((key, self.values.get(value.clone())?))
    }
}

/// Returns all events of the millisecond: those of the old side, then those that only the new side has, each in key
/// order.
pub fn pairs<'a>(old: &'a MillisecondReader<'_>, new: &'a MillisecondReader<'_>) -> Vec<Pair<'a>> {
    let mut by_seq: Vec<_> =
        new.keys.iter().enumerate().map(|(index, (key, _))| (key.seq, index)).collect();
    by_seq.sort_unstable();
    let mut is_paired = vec![false; new.keys.len()];
    let mut pairs = Vec::with_capacity(old.keys.len());
    for (index, (key, _)) in old.keys.iter().enumerate() {
        let found = by_seq.binary_search_by_key(&key.seq, |(seq, _)| *seq);
        let other = found.ok().and_then(|found| by_seq.get(found)).map(|(_, index)| *index);
        if let Some(paired) = other.and_then(|other| is_paired.get_mut(other)) {
            *paired = true;
        }
        pairs.push(Pair { old: old.row(index), new: other.and_then(|other| new.row(other)) });
    }
    let alone = is_paired.iter().enumerate().filter(|(_, is_paired)| !**is_paired);
    pairs.extend(alone.map(|(index, _)| Pair { old: None, new: new.row(index) }));
    pairs
}
