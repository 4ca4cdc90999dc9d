//! Selects the current row where several rows of an event exist: while one replaces another, and after a worker ended
//! between writing the new row and deleting the old one.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::StoreError;
use crate::layout::codec::row::RowView;
use crate::layout::stored_row::StoredRow;

/// Keeps the row with the greatest revision of each event. `rows` are those of one app and millisecond, in key order.
pub fn keep_latest(rows: &mut Vec<StoredRow>) -> Result<(), StoreError> {
    if rows.len() < 2 {
        return Ok(());
    }
    let mut latest: HashMap<u64, (u32, usize), FixedState> = HashMap::default();
    let mut is_older = vec![false; rows.len()];
    let mut has_older = false;
    for (index, (key, value)) in rows.iter().enumerate() {
        let revision = RowView::decode(value)?.revision;
        let (latest_revision, latest_index) = *latest.entry(key.seq).or_insert((revision, index));
        if latest_index == index {
            continue;
        }
        has_older = true;
        if revision > latest_revision {
            is_older[latest_index] = true;
            latest.insert(key.seq, (revision, index));
        } else {
            is_older[index] = true;
        }
    }
    if has_older {
        let mut is_older = is_older.into_iter();
        rows.retain(|_| !is_older.next().unwrap_or_default());
    }
    Ok(())
}
