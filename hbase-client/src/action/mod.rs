//! What can be done to a row, and what comes of it.

use bytes::Bytes;

use crate::error::Error;
use crate::rows::Row;
use crate::wire::cell::{FAMILY_BYTES_MAX, Kind, LATEST, Parts, ROW_BYTES_MAX};

mod selection;
pub use selection::Selection;

/// A cell to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewCell {
    pub family: Bytes,
    pub qualifier: Bytes,
    pub timestamp: u64,
    pub kind: Kind,
    pub value: Bytes,
}

impl NewCell {
    pub fn parts<'a>(&'a self, row: &'a [u8]) -> Parts<'a> {
        let Self { family, qualifier, timestamp, kind, value } = self;
        Parts { row, family, qualifier, timestamp: *timestamp, kind: *kind, value }
    }
}

/// Cells of one row, written together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    change: Change,
}

/// Cells of one row that are hidden from then on, together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub row: Bytes,
    pub cells: Vec<NewCell>,
    pub is_delete: bool,
    /// Of a delete of the whole row.
    pub until: Option<u64>,
    /// So long its cells are kept.
    pub ttl_ms: Option<u64>,
}

impl Put {
    pub fn new(row: impl Into<Bytes>) -> Self {
        let (row, cells) = (row.into(), Vec::with_capacity(1));
        Self { change: Change { row, cells, is_delete: false, until: None, ttl_ms: None } }
    }

    /// With the time of the server that takes it.
    pub fn cell(
        self,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        self.cell_at(LATEST, family, qualifier, value)
    }

    /// With a timestamp, in milliseconds where the table's families expire by age. A put that was
    /// tried twice is then surely one cell.
    pub fn cell_at(
        mut self,
        timestamp: u64,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        let (family, qualifier, value) = (family.into(), qualifier.into(), value.into());
        self.change.cells.push(NewCell { family, qualifier, timestamp, kind: Kind::Put, value });
        self
    }

    /// Its cells go so many milliseconds after their timestamps, or with their family's `TTL` if that is less.
    pub fn ttl(mut self, ms: u64) -> Self {
        self.change.ttl_ms = Some(ms);
        self
    }
}

impl Delete {
    /// Of the whole row, unless columns or families are named.
    pub fn new(row: impl Into<Bytes>) -> Self {
        let (row, cells) = (row.into(), Vec::new());
        Self { change: Change { row, cells, is_delete: true, until: None, ttl_ms: None } }
    }

    /// Of a whole row: only what has this timestamp or an earlier one.
    pub fn until(mut self, timestamp: u64) -> Self {
        self.change.until = Some(timestamp);
        self
    }

    /// All versions of a column.
    pub fn column(self, family: impl Into<Bytes>, qualifier: impl Into<Bytes>) -> Self {
        self.column_until(LATEST, family, qualifier)
    }

    /// The versions of a column with this timestamp or an earlier one.
    pub fn column_until(
        self,
        timestamp: u64,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
    ) -> Self {
        self.marker(Kind::DeleteColumn, timestamp, family.into(), qualifier.into())
    }

    /// The version of a column with just this timestamp.
    pub fn version(
        self,
        timestamp: u64,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
    ) -> Self {
        self.marker(Kind::Delete, timestamp, family.into(), qualifier.into())
    }

    /// A whole family.
    pub fn family(self, family: impl Into<Bytes>) -> Self {
        self.marker(Kind::DeleteFamily, LATEST, family.into(), Bytes::new())
    }

    fn marker(mut self, kind: Kind, timestamp: u64, family: Bytes, qualifier: Bytes) -> Self {
        let value = Bytes::new();
        self.change.cells.push(NewCell { family, qualifier, timestamp, kind, value });
        self
    }
}

/// A put or a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    pub(crate) change: Change,
}

impl From<Put> for Mutation {
    fn from(put: Put) -> Self {
        Self { change: put.change }
    }
}

impl From<Delete> for Mutation {
    fn from(delete: Delete) -> Self {
        Self { change: delete.change }
    }
}

impl Mutation {
    pub fn row(&self) -> &Bytes {
        &self.change.row
    }
}

/// A change that is made only where a column is as expected, in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckAndMutate {
    pub(crate) family: Bytes,
    pub(crate) qualifier: Bytes,
    pub(crate) expected: Option<Bytes>,
    pub(crate) change: Change,
}

impl CheckAndMutate {
    /// Where the column's latest value is this one. An empty value is for HBase as good as none:
    /// such a condition holds where there is none, too.
    pub fn where_equal(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        expected: impl Into<Bytes>,
        then: impl Into<Mutation>,
    ) -> Self {
        Self::new(family.into(), qualifier.into(), Some(expected.into()), then.into())
    }

    /// Where the column has no value, or an empty one.
    pub fn where_absent(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        then: impl Into<Mutation>,
    ) -> Self {
        Self::new(family.into(), qualifier.into(), None, then.into())
    }

    fn new(family: Bytes, qualifier: Bytes, expected: Option<Bytes>, then: Mutation) -> Self {
        Self { family, qualifier, expected, change: then.change }
    }
}

/// A row to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    pub(crate) row: Bytes,
    pub(crate) selection: Selection,
}

impl Get {
    pub fn new(row: impl Into<Bytes>) -> Self {
        Self { row: row.into(), selection: Selection::all() }
    }

    /// Only these of its cells.
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }
}

/// Whatever is done with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Mutate(Change),
    Check(CheckAndMutate),
    Get(Get),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// What was read; nothing of a row that is not there, nor of one that was written.
    Row(Option<Row>),
    /// Whether the condition held.
    Checked(bool),
}

impl Action {
    pub fn row(&self) -> &Bytes {
        match self {
            Self::Mutate(change) => &change.row,
            Self::Check(check) => &check.change.row,
            Self::Get(get) => &get.row,
        }
    }

    /// About as many as it has in a call.
    pub fn bytes(&self) -> usize {
        /// Of lengths, indexes and the like.
        const AROUND: usize = 64;
        let change = match self {
            Self::Mutate(change) => change,
            Self::Check(check) => &check.change,
            Self::Get(get) => return AROUND + get.row.len(),
        };
        let cell = |cell: &NewCell| cell.parts(&change.row).encoded_len();
        AROUND + change.row.len() + change.cells.iter().map(cell).sum::<usize>()
    }

    /// Whether a second try does no harm and tells the same.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Check(_))
    }

    /// What no server would take, and what would end the connection for others too.
    pub fn check(&self, bytes_max: usize) -> Result<(), Error> {
        let row = self.row();
        if row.is_empty() || row.len() > ROW_BYTES_MAX {
            let length = row.len();
            return Err(Error::input(format!(
                "a row key has 1 to {ROW_BYTES_MAX} bytes, this one has {length}"
            )));
        }
        let bytes = self.bytes();
        if bytes > bytes_max {
            return Err(Error::input(format!(
                "a row of {bytes} bytes can not be sent in one call: at most {bytes_max} \
                 (Config::in_flight_bytes_max)"
            )));
        }
        match self {
            Self::Mutate(change) => change.check(),
            Self::Check(check) => check.change.check().and_then(|()| check_family(&check.family)),
            Self::Get(_) => Ok(()),
        }
    }
}

impl Change {
    fn check(&self) -> Result<(), Error> {
        if self.cells.is_empty() && !self.is_delete {
            return Err(Error::input("a put without a cell"));
        }
        self.cells.iter().try_for_each(|cell| check_family(&cell.family))
    }
}

fn check_family(family: &[u8]) -> Result<(), Error> {
    if (1..=FAMILY_BYTES_MAX).contains(&family.len()) {
        return Ok(());
    }
    let length = family.len();
    Err(Error::input(format!(
        "a family's name has 1 to {FAMILY_BYTES_MAX} bytes, this one has {length}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(action: Action, error: Option<&str>) {
        match (action.check(1_000_000), error) {
            (Ok(()), None) => {}
            (Err(found), Some(wanted)) if found.to_string().contains(wanted) => {}
            (found, _) => panic!("{found:?}"),
        }
    }

    fn put(put: Put) -> Action {
        Action::Mutate(Mutation::from(put).change)
    }

    #[test]
    fn what_no_server_takes_is_refused() {
        check(put(Put::new("r").cell("f", "q", "v")), None);
        check(put(Put::new("r")), Some("without a cell"));
        check(put(Put::new("").cell("f", "q", "v")), Some("row key"));
        check(put(Put::new(vec![0; 32_768]).cell("f", "q", "v")), Some("row key"));
        check(put(Put::new("r").cell("", "q", "v")), Some("family"));
        check(put(Put::new("r").cell(vec![b'f'; 128], "q", "v")), Some("family"));
        check(put(Put::new("r").cell("f", "q", vec![0; 1_000_001])), Some("one call"));
        check(Action::Mutate(Mutation::from(Delete::new("r")).change), None);
        check(Action::Get(Get::new("")), Some("row key"));
        let checked = CheckAndMutate::where_absent("", "q", Delete::new("r"));
        check(Action::Check(checked), Some("family"));
    }
}
