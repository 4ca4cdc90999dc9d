//! Reclaims the disk space of rows that retention has passed.
//!
//! A compaction removes such rows, but the next regular one may be weeks later if little is written. So their bytes are
//! summed up, and once the sum is large a thread compacts the files that contain them. The sum is stored in `meta`.
//!
//! Files that contain only such rows are compacted too, not dropped. A dropped file may hold the tombstones of older
//! rows, which a longer retention would then show again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use attribution::facts::event::{EventTime, Pid};
use parking_lot::Mutex;
use rocksdb::{CompactOptions, WriteBatch};

use crate::StoreError;
use crate::apps::record::Apps;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::open::meta;
use crate::embedded::tables::Tables;
use crate::layout::key::{self, Key};

/// A smaller sum is left to regular compactions.
const BYTES_MIN: u64 = 64 << 20;
/// So is one below this fraction (1/8) of the table.
const TABLE_FRACTION: u64 = 8;

/// Counts the bytes of rows that retention has passed, and compacts them away.
pub struct SpaceReclaimer {
    swept: Arc<Swept>,
    /// The sum in the batch that is being built or written, if it has one.
    in_flight: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Swept {
    /// Size of keys and values, before compression.
    bytes: AtomicU64,
    is_cancelled: AtomicBool,
    /// Locked while the sum is changed and stored.
    update: Mutex<()>,
}

/// First and last key, inclusive; `None`: the start or the end of the table.
type KeyRange = (Option<Key>, Option<Key>);

impl SpaceReclaimer {
    pub fn open(tables: &Tables) -> Result<Self, StoreError> {
        let swept = Swept { bytes: AtomicU64::new(meta::swept(tables)?), ..Swept::default() };
        Ok(Self { swept: Arc::new(swept), in_flight: None, thread: None })
    }

    /// Adds the bytes of rows that retention passes with a batch; negative if a longer retention shows rows again.
    pub fn sweep(&mut self, bytes: i64, batch: &mut WriteBatch, tables: &Tables) {
        let _update = self.swept.update.lock();
        let swept = self.swept.bytes.load(Ordering::Relaxed).saturating_add_signed(bytes);
        self.swept.bytes.store(swept, Ordering::Relaxed);
        meta::put_swept(batch, tables, swept);
        self.in_flight = Some(swept);
    }

    /// Starts the thread if the sum is large and the thread is not running. Must be called after each batch is written.
    pub fn reclaim(&mut self, rows_bytes: i64, tables: &Tables, apps: &Apps, partitions: u16) {
        self.correct_stored(tables);
        let swept = self.swept.bytes.load(Ordering::Relaxed);
        let all = u64::try_from(rows_bytes).unwrap_or(0).saturating_add(swept);
        let is_little = swept < BYTES_MIN.max(all / TABLE_FRACTION);
        if is_little || self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (tables, apps, sum) = (tables.clone(), apps.clone(), Arc::clone(&self.swept));
        let work = move || compact(&tables, &apps, partitions, &sum, swept);
        let thread = std::thread::Builder::new().name("adtrail-space".into());
        // If no thread can be started, the next batch tries again.
        self.thread = thread.spawn(work).ok();
    }

    /// Stores the sum again if the thread has reduced it after it was put into the batch that is now written.
    fn correct_stored(&mut self, tables: &Tables) {
        let Some(written) = self.in_flight.take() else { return };
        let _update = self.swept.update.lock();
        let swept = self.swept.bytes.load(Ordering::Relaxed);
        if swept != written {
            store(tables, swept);
        }
    }
}

impl Drop for SpaceReclaimer {
    /// Waits until the present compaction has finished.
    fn drop(&mut self) {
        self.swept.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and a panic has already been reported.
            let _ = thread.join();
        }
    }
}

/// Compacts the expired rows away. `reclaimed` are their bytes: at most those that `apps` say have expired, because the
/// next batch may add bytes before it changes `apps`.
fn compact(tables: &Tables, apps: &Apps, partitions: u16, swept: &Swept, reclaimed: u64) {
    let expired: Vec<(Key, Key)> = apps
        .all()
        .iter()
        .filter(|(_, app)| app.oldest > EventTime::default())
        .flat_map(|(pid, app)| {
            app.partitions(partitions)
                .map(|partition| expired_range(partition, *pid, app.oldest))
                .collect::<Vec<_>>()
        })
        .collect();
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    let Ok(ranges) = compaction_ranges(tables) else { return };
    for (first, last) in ranges {
        if swept.is_cancelled.load(Ordering::Relaxed) {
            return;
        }
        let overlaps = |(from, end): &(Key, Key)| {
            last.is_none_or(|last| *from <= last) && first.is_none_or(|first| *end > first)
        };
        if expired.iter().any(overlaps) {
            tables.db.compact_range_cf_opt(&tables.events(), first, last, &options);
        }
    }
    let _update = swept.update.lock();
    let remaining = swept.bytes.load(Ordering::Relaxed).saturating_sub(reclaimed);
    swept.bytes.store(remaining, Ordering::Relaxed);
    store(tables, remaining);
}

/// Stores the sum. If this fails, the compaction is repeated after the next start.
fn store(tables: &Tables, swept: u64) {
    let mut batch = WriteBatch::default();
    meta::put_swept(&mut batch, tables, swept);
    let _ = tables.db.write(batch);
}

/// The expired rows of an app in a partition: the first key, and the exclusive end.
fn expired_range(partition: u16, pid: Pid, oldest: EventTime) -> (Key, Key) {
    let from = |time| key::row_from(partition, pid, time);
    (from(EventTime::default()), from(oldest))
}

/// The keys of the table, divided at the files of the lowest level, so that a compaction takes about a second and no
/// file is compacted twice.
fn compaction_ranges(tables: &Tables) -> Result<Vec<KeyRange>, StoreError> {
    let files = tables.db.live_files()?;
    let of_table = || files.iter().filter(|file| file.column_family_name == EVENTS);
    let lowest = of_table().map(|file| file.level).max().filter(|level| *level > 0);
    let of_lowest = of_table().filter(|file| Some(file.level) == lowest);
    let starts = of_lowest.filter_map(|file| Key::try_from(file.start_key.as_deref()?).ok());
    let mut starts: Vec<Key> = starts.collect();
    starts.sort_unstable();
    let firsts = std::iter::once(None).chain(starts.iter().skip(1).copied().map(Some));
    let lasts = starts.iter().skip(1).map(|next| Some(key::previous(next)));
    Ok(firsts.zip(lasts.chain([None])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::open::column_families::Limits;

    fn on_disk() -> (Tables, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        (tables, dir)
    }

    #[test]
    fn bytes_that_are_added_meanwhile_are_left_to_be_reclaimed() {
        let (tables, _dir) = on_disk();
        let swept = Swept { bytes: AtomicU64::new(10), ..Swept::default() };
        compact(&tables, &Apps::default(), 8, &swept, 7);
        assert_eq!(swept.bytes.load(Ordering::Relaxed), 3);
        assert_eq!(meta::swept(&tables).unwrap(), 3);
    }

    /// Otherwise they would be reclaimed again after a restart.
    #[test]
    fn bytes_that_are_reclaimed_while_a_batch_is_written_stay_reclaimed() {
        let (tables, _dir) = on_disk();
        let mut reclaimer = SpaceReclaimer::open(&tables).unwrap();
        let mut batch = WriteBatch::default();
        reclaimer.sweep(10, &mut batch, &tables);
        compact(&tables, &Apps::default(), 8, &reclaimer.swept, 7);
        tables.db.write(batch).unwrap();
        reclaimer.reclaim(0, &tables, &Apps::default(), 8);
        assert_eq!(meta::swept(&tables).unwrap(), 3);
    }
}
