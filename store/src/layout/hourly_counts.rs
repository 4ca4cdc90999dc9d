//! Counts of rows by partition, app and hour of event time.
//!
//! A cell counts the rows of one such hour, so that they need not be read: the size of a region is the sum of its
//! cells, regions are split between cells, and retention removes whole cells. Every write batch updates the cells of
//! its rows.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::HOUR_MS;
use attribution::rules::row::{EventType, Status};
use rocksdb::MergeOperands;

use super::key::{KEY_BYTES, Key, RowKey};

/// partition u16 · pid u32 · hours since 1970 u32.
pub const CELL_KEY_BYTES: usize = 10;

pub type CellKey = [u8; CELL_KEY_BYTES];

const STATUSES: usize = Status::ALL.len();
const COUNTS: usize = EventType::ALL.len() * STATUSES;

/// The value of a cell, or a difference that is added to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// Size of keys and values, before compression.
    pub bytes: i64,
    counts: [i64; COUNTS],
}

impl Cell {
    /// A difference of one row; negative `bytes` remove the row.
    pub fn row(event_type: EventType, status: Status, bytes: i64) -> Self {
        let mut cell = Self { bytes, ..Self::default() };
        cell.counts[event_type as usize * STATUSES + status as usize] = bytes.signum();
        cell
    }

    pub fn rows(&self) -> i64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    pub fn count(&self, event_type: EventType, status: Status) -> i64 {
        self.counts[event_type as usize * STATUSES + status as usize]
    }

    /// Wraps around on overflow: RocksDB also merges damaged values, which must not cause a panic.
    pub fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count = count.wrapping_add(other);
        }
    }

    pub fn negated(&self) -> Self {
        Self { bytes: self.bytes.wrapping_neg(), counts: self.counts.map(i64::wrapping_neg) }
    }

    /// Each number as a zigzag varint.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        for number in std::iter::once(self.bytes).chain(self.counts) {
            super::codec::put_signed(&mut out, number);
        }
        out
    }

    /// `None` if the bytes are not a cell. A new type or status changes the layout.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = super::codec::Input::new(bytes);
        let mut cell = Self::default();
        let numbers = std::iter::once(&mut cell.bytes).chain(&mut cell.counts);
        for number in numbers {
            *number = input.signed().ok()?;
        }
        input.end().ok()?;
        Some(cell)
    }
}

/// The cell of a row's key.
pub fn cell_key(row: &RowKey) -> CellKey {
    cell_from(row.partition, row.pid, row.event_time)
}

/// The cell of an app in a partition that contains a time.
pub fn cell_from(partition: u16, pid: Pid, time: EventTime) -> CellKey {
    let mut key = [0; CELL_KEY_BYTES];
    key[..2].copy_from_slice(&partition.to_be_bytes());
    key[2..6].copy_from_slice(&pid.0.to_be_bytes());
    key[6..].copy_from_slice(&hour(time).to_be_bytes());
    key
}

/// The app of a cell.
pub fn pid(cell: &CellKey) -> Pid {
    Pid(u32::from_be_bytes([cell[2], cell[3], cell[4], cell[5]]))
}

/// The cell that begins at the start of a region. Regions are split at cell boundaries.
pub fn cell_at(start: &Key) -> CellKey {
    RowKey::decode(start).map_or([0; CELL_KEY_BYTES], |start| cell_key(&start))
}

/// The least row key that belongs to a cell.
pub fn first_row(cell: &CellKey) -> Key {
    let hour = u32::from_be_bytes([cell[6], cell[7], cell[8], cell[9]]);
    let millis = (u64::from(hour) * HOUR_MS).to_be_bytes();
    let mut key = [0; KEY_BYTES];
    key[..6].copy_from_slice(&cell[..6]);
    key[6..12].copy_from_slice(&millis[2..]);
    key
}

/// The start of a cell's hour; `None` if event times cannot reach it.
pub fn start(cell: &CellKey) -> Option<EventTime> {
    RowKey::decode(&first_row(cell)).map(|first| first.event_time)
}

/// The start of the hour that contains a time.
pub fn hour_start(time: EventTime) -> EventTime {
    EventTime::default().plus(u64::from(hour(time)) * HOUR_MS)
}

/// Event times end before the year 10000, so hours fit into 32 bits.
fn hour(time: EventTime) -> u32 {
    u32::try_from(time.millis() / HOUR_MS).unwrap_or(u32::MAX)
}

/// The change of a cell by a write batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    pub cell: Cell,
    /// Written rows, both new and corrected.
    pub written: u64,
}

/// The changes of a write batch by cell.
pub type Changes = BTreeMap<CellKey, Change>;

/// RocksDB's merge operator for cells. Damaged values count as 0, so that they do not fail compactions; `adtrail
/// verify` finds them.
pub fn merge(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum = existing.and_then(Cell::decode).unwrap_or_default();
    for cell in operands.iter().filter_map(Cell::decode) {
        sum.add(&cell);
    }
    Some(sum.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::facts::event::SpreadId;

    #[test]
    fn a_cell_is_an_hour_of_an_app_in_a_partition() {
        let at = |millis| RowKey {
            partition: 3,
            pid: Pid(1),
            event_time: EventTime::from_millis(millis).unwrap(),
            spreadid: SpreadId(9),
            seq: 9,
        };
        let hour = HOUR_MS as i64;
        assert_eq!(cell_key(&at(hour)), cell_key(&at(2 * hour - 1)));
        assert!(cell_key(&at(hour - 1)) < cell_key(&at(hour)));
        assert!(first_row(&cell_key(&at(hour))) <= at(hour).encode());
        assert!(first_row(&cell_key(&at(hour))) > at(hour - 1).encode());
        assert_eq!(cell_at(&first_row(&cell_key(&at(hour)))), cell_key(&at(hour)));
        assert_eq!(hour_start(at(2 * hour - 1).event_time), at(hour).event_time);
    }
}
