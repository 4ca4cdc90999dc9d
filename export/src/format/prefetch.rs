//! Reads rows ahead: one thread reads the store while another writes the rows before. For rows that cannot be divided
//! into [`super::parts`]: pages, rows that are sorted newest first, and all rows of HBase.

use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use store::StoreError;
use store::layout::key::RowKey;
use store::reader::Rows;

use crate::ExportError;

/// A batch is sent once its values have this size.
const BATCH_BYTES: usize = 128 << 10;
/// A batch is sent after this many rows, wanted or not.
const BATCH_ROWS_MAX: usize = 16_384;
/// Batches that may wait to be written.
const BATCHES_WAITING_MAX: usize = 4;

/// Rows copied out of the store.
struct Batch {
    /// Each key with the end of its value in `values`; `None` if the row is not wanted.
    rows: Vec<(RowKey, Option<usize>)>,
    values: Vec<u8>,
}

/// Calls `visit` with the key of each following row and its value, or with `None` if `is_wanted` rejects the key.
///
/// # Errors
/// Errors of the store and of `visit`, or no thread can be started.
pub(crate) fn each(
    rows: Rows<'_>,
    is_wanted: impl Fn(&RowKey) -> bool + Send,
    mut visit: impl FnMut(&RowKey, Option<&[u8]>) -> Result<ControlFlow<()>, ExportError>,
) -> Result<(), ExportError> {
    thread::scope(|scope| {
        let (batches, ready) = sync_channel(BATCHES_WAITING_MAX);
        thread::Builder::new()
            .name("adtrail-scan".into())
            .spawn_scoped(scope, move || read(rows, &is_wanted, &batches))
            .map_err(ExportError::NoThread)?;
        for batch in ready {
            let Batch { rows, values } = batch?;
            let mut begin = 0;
            for (key, end) in &rows {
                let value = end.map(|end| &values[begin..end]);
                begin = end.unwrap_or(begin);
                if visit(key, value)?.is_break() {
                    // The reading thread stops because the channel is closed.
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn read(
    mut rows: Rows<'_>,
    is_wanted: impl Fn(&RowKey) -> bool,
    batches: &SyncSender<Result<Batch, StoreError>>,
) {
    loop {
        let batch = next(&mut rows, &is_wanted);
        let is_last = batch.as_ref().map_or(true, |batch| batch.rows.is_empty());
        if batches.send(batch).is_err() || is_last {
            return;
        }
    }
}

/// Returns the next rows; an empty batch is the last.
fn next(rows: &mut Rows<'_>, is_wanted: impl Fn(&RowKey) -> bool) -> Result<Batch, StoreError> {
    let mut batch = Batch { rows: Vec::new(), values: Vec::with_capacity(BATCH_BYTES + 4096) };
    while batch.values.len() < BATCH_BYTES && batch.rows.len() < BATCH_ROWS_MAX {
        let Some((key, value)) = rows.current()? else { break };
        let is_wanted = is_wanted(&key);
        if is_wanted {
            batch.values.extend_from_slice(value);
        }
        batch.rows.push((key, is_wanted.then_some(batch.values.len())));
        rows.advance();
    }
    Ok(batch)
}
