//! Which rows are shown where several stand of one event: while one takes the place of another, and
//! where whoever did that ended in between.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::StoreError;
use crate::layout::codec::row::RowView;
use crate::layout::stored_row::StoredRow;

/// Of the rows of one app in one millisecond, in key order: leaves of each event the one of the
/// greatest revision.
pub fn settle(rows: &mut Vec<StoredRow>) -> Result<(), StoreError> {
    if rows.len() < 2 {
        return Ok(());
    }
    let mut newest: HashMap<u64, (u32, usize), FixedState> = HashMap::default();
    let mut is_older = vec![false; rows.len()];
    let mut has_older = false;
    for (place, (key, value)) in rows.iter().enumerate() {
        let revision = RowView::decode(value)?.revision;
        let (standing, standing_place) = *newest.entry(key.seq).or_insert((revision, place));
        if standing_place == place {
            continue;
        }
        has_older = true;
        if revision > standing {
            is_older[standing_place] = true;
            newest.insert(key.seq, (revision, place));
        } else {
            is_older[place] = true;
        }
    }
    if has_older {
        let mut places = is_older.into_iter();
        rows.retain(|_| !places.next().unwrap_or_default());
    }
    Ok(())
}
