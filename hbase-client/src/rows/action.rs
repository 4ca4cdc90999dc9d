//! Actions on a row, and their outcomes.

use bytes::Bytes;

use super::{Row, Selection};
use crate::error::Error;
use crate::wire::cell::{FAMILY_BYTES_MAX, Kind, LATEST, Parts, ROW_BYTES_MAX};

/// A cell to write.
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

/// Cells of one row, written atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    change: Change,
}

/// Cells of one row, deleted atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub row: Bytes,
    pub cells: Vec<NewCell>,
    pub is_delete: bool,
    /// The latest timestamp that a delete of the whole row covers.
    pub until: Option<u64>,
    /// The time to live of the cells.
    pub ttl_ms: Option<u64>,
}

impl Put {
    pub fn new(row: impl Into<Bytes>) -> Self {
        let (row, cells) = (row.into(), Vec::with_capacity(1));
        Self { change: Change { row, cells, is_delete: false, until: None, ttl_ms: None } }
    }

    /// Adds a cell with the server's time as its timestamp.
    pub fn cell(
        self,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        self.cell_at(LATEST, family, qualifier, value)
    }

    /// Adds a cell with this timestamp, which must be in milliseconds if the family has a TTL. With a timestamp, a
    /// retried put overwrites its cell instead of adding another version.
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

    /// Expires the cells this many milliseconds after their timestamps, or by the family's `TTL` if that is shorter.
    pub fn ttl(mut self, ms: u64) -> Self {
        self.change.ttl_ms = Some(ms);
        self
    }
}

impl Delete {
    /// Deletes the whole row, unless columns or families are added.
    pub fn new(row: impl Into<Bytes>) -> Self {
        let (row, cells) = (row.into(), Vec::new());
        Self { change: Change { row, cells, is_delete: true, until: None, ttl_ms: None } }
    }

    /// Limits the delete of a whole row to cells with this timestamp or an earlier one.
    pub fn until(mut self, timestamp: u64) -> Self {
        self.change.until = Some(timestamp);
        self
    }

    /// Deletes all versions of a column.
    pub fn column(self, family: impl Into<Bytes>, qualifier: impl Into<Bytes>) -> Self {
        self.column_until(LATEST, family, qualifier)
    }

    /// Deletes the versions of a column with this timestamp or an earlier one.
    pub fn column_until(
        self,
        timestamp: u64,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
    ) -> Self {
        self.marker(Kind::DeleteColumn, timestamp, family.into(), qualifier.into())
    }

    /// Deletes the version of a column with exactly this timestamp.
    pub fn version(
        self,
        timestamp: u64,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
    ) -> Self {
        self.marker(Kind::Delete, timestamp, family.into(), qualifier.into())
    }

    /// Deletes a whole family.
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

/// A change that is applied only if a column has the expected value, atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckAndMutate {
    pub(crate) family: Bytes,
    pub(crate) qualifier: Bytes,
    pub(crate) expected: Option<Bytes>,
    pub(crate) change: Change,
}

impl CheckAndMutate {
    /// Requires that the latest value of the column equals `expected`. HBase treats an empty value as a missing one, so
    /// an empty `expected` also matches a missing value.
    pub fn where_equal(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        expected: impl Into<Bytes>,
        change: impl Into<Mutation>,
    ) -> Self {
        Self::new(family.into(), qualifier.into(), Some(expected.into()), change.into())
    }

    /// Requires that the column has no value, or an empty one.
    pub fn where_absent(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        change: impl Into<Mutation>,
    ) -> Self {
        Self::new(family.into(), qualifier.into(), None, change.into())
    }

    fn new(family: Bytes, qualifier: Bytes, expected: Option<Bytes>, mutation: Mutation) -> Self {
        Self { family, qualifier, expected, change: mutation.change }
    }
}

/// A row to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    pub(crate) row: Bytes,
    pub(crate) selection: Selection,
}

impl Get {
    pub fn new(row: impl Into<Bytes>) -> Self {
        Self { row: row.into(), selection: Selection::all() }
    }

    /// Reads the selected cells only.
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }
}

/// Any action on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Mutate(Change),
    Check(CheckAndMutate),
    Get(Get),
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The row of a get. `None` for a row that does not exist, and for a mutation.
    Row(Option<Row>),
    /// True if the condition of a check held.
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

    /// Returns the approximate size in a request.
    pub fn bytes(&self) -> usize {
        /// Lengths, indexes and field keys.
        const OVERHEAD: usize = 64;
        let change = match self {
            Self::Mutate(change) => change,
            Self::Check(check) => &check.change,
            Self::Get(get) => return OVERHEAD + get.row.len(),
        };
        let cell = |cell: &NewCell| cell.parts(&change.row).encoded_len();
        OVERHEAD + change.row.len() + change.cells.iter().map(cell).sum::<usize>()
    }

    /// Returns whether a retry has the same effect and result.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Check(_))
    }

    /// Rejects actions that no server accepts, or that would end the connection for other calls too.
    pub fn check(&self, bytes_max: usize) -> Result<(), Error> {
        let row = self.row();
        if row.is_empty() || row.len() > ROW_BYTES_MAX {
            let length = row.len();
            return Err(Error::input(format!(
                "row key of {length} bytes: must be 1 to {ROW_BYTES_MAX}"
            )));
        }
        let bytes = self.bytes();
        if bytes > bytes_max {
            return Err(Error::input(format!(
                "row of {bytes} bytes does not fit into one call: at most {bytes_max} \
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
            return Err(Error::input("a put needs at least one cell"));
        }
        self.cells.iter().try_for_each(|cell| check_family(&cell.family))
    }
}

fn check_family(family: &[u8]) -> Result<(), Error> {
    if (1..=FAMILY_BYTES_MAX).contains(&family.len()) {
        return Ok(());
    }
    let length = family.len();
    Err(Error::input(format!("family name of {length} bytes: must be 1 to {FAMILY_BYTES_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(action: Action, error: Option<&str>) {
        match (action.check(1_000_000), error) {
            (Ok(()), None) => {}
            (Err(found), Some(expected)) if found.to_string().contains(expected) => {}
            (found, _) => panic!("{found:?}"),
        }
    }

    fn put(put: Put) -> Action {
        Action::Mutate(Mutation::from(put).change)
    }

    #[test]
    fn invalid_actions_are_rejected() {
        check(put(Put::new("r").cell("f", "q", "v")), None);
        check(put(Put::new("r")), Some("at least one cell"));
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
