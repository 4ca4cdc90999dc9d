//! Rows read ahead: one thread reads the store while another writes what came before, so that an
//! export of many rows takes half as long where a processor is free.

use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use store::StoreError;
use store::layout::key::RowKey;
use store::reader::Rows;

use crate::ExportError;

/// A batch is handed on once its values are as long as this.
const BATCH_BYTES: usize = 128 << 10;
/// And after so many rows, asked for or not.
const BATCH_ROWS_MAX: usize = 16_384;
/// Batches that wait to be written.
const BATCHES_WAITING_MAX: usize = 4;

/// Rows copied out of the store.
struct Batch {
    /// Each with where its value ends; `None`: the row is not asked for.
    rows: Vec<(RowKey, Option<usize>)>,
    values: Vec<u8>,
}

/// Calls `visit` with the key of each row that follows and its value, or with `None` where
/// `is_wanted` says so.
///
/// # Errors
/// The store's, `visit`'s, and that there is no thread to be had.
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
                    // Whoever reads finds nobody who takes it.
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

/// The next rows; none at the end.
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
