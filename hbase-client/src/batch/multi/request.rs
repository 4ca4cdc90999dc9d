//! Encodes the request directly: building thousands of small nested messages first would take most of the time.

use super::{Group, Part};
use crate::proto::common::RegionSpecifier;
use crate::proto::write::{bytes, nested, number};
use crate::rows::{Action, Change, CheckAndMutate, Get, NewCell, Selection};
use crate::wire::cell::Kind;

const EQUAL: u64 = 2;
const COMPARATOR: &[u8] = b"org.apache.hadoop.hbase.filter.BinaryComparator";
const COLUMN_RANGE: &[u8] = b"org.apache.hadoop.hbase.filter.ColumnRangeFilter";
const PUT: u64 = 2;
const DELETE: u64 = 3;

/// Adds the actions on a region to a `MultiRequest`. Returns the parts of the response to expect.
pub fn add(actions: &[Action], group: &Group, out: &mut Vec<u8>, cells: &mut Vec<u8>) -> Vec<Part> {
    let mut parts = Vec::new();
    // A condition applies to all actions of its region action, so each check gets its own region action.
    for &id in &group.ids {
        if let Action::Check(check) = &actions[id as usize] {
            nested(out, 1, |out| {
                nested(out, 1, |out| write_region(out, group));
                nested(out, 3, |out| write_check(out, check));
                nested(out, 4, |out| write_condition(out, check));
            });
            parts.push(Part { ids: vec![id], is_check: true });
        }
    }
    let is_plain = |id: &u32| !matches!(actions[*id as usize], Action::Check(_));
    let ids: Vec<u32> = group.ids.iter().copied().filter(is_plain).collect();
    if !ids.is_empty() {
        nested(out, 1, |out| {
            nested(out, 1, |out| write_region(out, group));
            for (index, &id) in ids.iter().enumerate() {
                nested(out, 3, |out| write_action(out, index, &actions[id as usize], cells));
            }
        });
        parts.push(Part { ids, is_check: false });
    }
    parts
}

fn write_region(out: &mut Vec<u8>, group: &Group) {
    number(out, 1, RegionSpecifier::NAME);
    bytes(out, 2, &group.region.name);
}

fn write_action(out: &mut Vec<u8>, index: usize, action: &Action, cells: &mut Vec<u8>) {
    number(out, 1, index as u64);
    match action {
        Action::Mutate(change) => nested(out, 2, |out| write_change(out, change, cells)),
        Action::Get(get) => nested(out, 3, |out| write_get(out, get)),
        Action::Check(_) => {}
    }
}

/// Writes a change with its cells in the cell block, and their number in the message.
fn write_change(out: &mut Vec<u8>, change: &Change, cells: &mut Vec<u8>) {
    for cell in &change.cells {
        cell.parts(&change.row).put(cells);
    }
    write_mutation(out, change, |_| {});
    number(out, 8, change.cells.len() as u64);
}

fn write_mutation(out: &mut Vec<u8>, change: &Change, columns: impl FnOnce(&mut Vec<u8>)) {
    bytes(out, 1, &change.row);
    number(out, 2, if change.is_delete { DELETE } else { PUT });
    columns(out);
    if let Some(until) = change.until {
        number(out, 4, until);
    }
    if let Some(ms) = change.ttl_ms {
        // HBase's own clients send the same attribute.
        nested(out, 5, |out| {
            bytes(out, 1, b"_ttl");
            bytes(out, 2, &ms.to_be_bytes());
        });
    }
}

/// Writes a conditional change with its cells in the message: if the check of the condition throws an exception, the
/// server may not skip cells in the block, and would use them for the next row.
fn write_check(out: &mut Vec<u8>, check: &CheckAndMutate) {
    number(out, 1, 0u64);
    let change = &check.change;
    nested(out, 2, |out| {
        write_mutation(out, change, |out| {
            for cell in &change.cells {
                nested(out, 3, |out| write_cell(out, cell));
            }
        });
    });
}

fn write_cell(out: &mut Vec<u8>, cell: &NewCell) {
    let delete_type: Option<u64> = match cell.kind {
        Kind::Put => None,
        Kind::Delete => Some(0),
        Kind::DeleteColumn => Some(1),
        Kind::DeleteFamily => Some(2),
        Kind::DeleteFamilyVersion => Some(3),
    };
    bytes(out, 1, &cell.family);
    nested(out, 2, |out| {
        bytes(out, 1, &cell.qualifier);
        bytes(out, 2, &cell.value);
        number(out, 3, cell.timestamp);
        if let Some(delete_type) = delete_type {
            number(out, 4, delete_type);
        }
    });
}

fn write_condition(out: &mut Vec<u8>, check: &CheckAndMutate) {
    bytes(out, 1, &check.change.row);
    bytes(out, 2, &check.family);
    bytes(out, 3, &check.qualifier);
    number(out, 4, EQUAL);
    nested(out, 5, |out| {
        bytes(out, 1, COMPARATOR);
        // A `BinaryComparator` contains a `ByteArrayComparable`.
        nested(out, 2, |out| {
            nested(out, 1, |out| bytes(out, 1, check.expected.as_deref().unwrap_or_default()));
        });
    });
}

fn write_get(out: &mut Vec<u8>, get: &Get) {
    let Selection { columns, versions, columns_between, columns_max } = &get.selection;
    bytes(out, 1, &get.row);
    for column in columns {
        nested(out, 2, |out| {
            bytes(out, 1, &column.family);
            column.qualifier.iter().for_each(|qualifier| bytes(out, 2, qualifier));
        });
    }
    if let Some(range) = columns_between {
        nested(out, 4, |out| {
            bytes(out, 1, COLUMN_RANGE);
            nested(out, 2, |out| {
                bytes(out, 1, &range.start);
                number(out, 2, true);
                bytes(out, 3, &range.end);
                number(out, 4, false);
            });
        });
    }
    number(out, 6, *versions);
    if let Some(columns) = columns_max {
        number(out, 8, *columns);
    }
}
