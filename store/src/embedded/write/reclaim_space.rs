//! Gives the space of rows back that retention has taken away.
//!
//! Compactions leave such rows out when they come by, which may be weeks later where little is
//! written. So their bytes are summed up, and once there are many the files that hold them are
//! compacted, in a thread of its own. What is swept and not compacted yet is kept in `meta`.
//!
//! Files that hold nothing else are compacted like the others, which only reads them. Dropping them
//! at once would bring rows back that a dropped file says were replaced, for whoever then sets a
//! longer retention.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use attribution::facts::event::{EventTime, Pid};
use rocksdb::{CompactOptions, WriteBatch};

use crate::StoreError;
use crate::apps::spread::Apps;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::open::meta;
use crate::embedded::tables::Tables;
use crate::layout::key::{self, Key};

/// Less is left to the compactions that come by.
const BYTES_MIN: u64 = 64 << 20;
/// And less than this part of the table.
const PART: u64 = 8;

/// The rows of the table that are swept and still there.
pub struct Space {
    swept: Arc<Swept>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Swept {
    /// Of keys and values, before compression.
    bytes: AtomicU64,
    must_end: AtomicBool,
    /// Held while the sum is changed and put.
    putting: Mutex<()>,
}

/// Keys from the first, up to and with the last; `None`: to the end of the table.
type Part = (Option<Key>, Option<Key>);

impl Space {
    pub fn open(tables: &Tables) -> Result<Self, StoreError> {
        let swept = Swept { bytes: AtomicU64::new(meta::swept(tables)?), ..Swept::default() };
        Ok(Self { swept: Arc::new(swept), thread: None })
    }

    /// Rows of so many bytes go with a batch; below zero: they count again.
    pub fn sweep(&self, bytes: i64, batch: &mut WriteBatch, tables: &Tables) {
        let _putting = self.swept.putting.lock().unwrap_or_else(PoisonError::into_inner);
        let swept = self.swept.bytes.load(Ordering::Relaxed).saturating_add_signed(bytes);
        self.swept.bytes.store(swept, Ordering::Relaxed);
        meta::put_swept(batch, tables, swept);
    }

    /// Begins to give space back, if there is much and nobody does.
    pub fn give_back(&mut self, rows_bytes: i64, tables: &Tables, apps: &Apps, partitions: u16) {
        let swept = self.swept.bytes.load(Ordering::Relaxed);
        let all = u64::try_from(rows_bytes).unwrap_or(0).saturating_add(swept);
        let is_little = swept < BYTES_MIN.max(all / PART);
        if is_little || self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (tables, apps, swept) = (tables.clone(), apps.clone(), Arc::clone(&self.swept));
        let work = move || compact(&tables, &apps, partitions, &swept);
        let thread = std::thread::Builder::new().name("adtrail-space".into());
        // Where there is no thread to be had, the next batch asks again.
        self.thread = thread.spawn(work).ok();
    }
}

impl Drop for Space {
    /// Waits for the part that is being compacted.
    fn drop(&mut self) {
        self.swept.must_end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It says nothing, and whoever closes a store can not help it.
            let _ = thread.join();
        }
    }
}

fn compact(tables: &Tables, apps: &Apps, partitions: u16, swept: &Swept) {
    let before = swept.bytes.load(Ordering::Relaxed);
    let gone: Vec<(Key, Key)> = apps
        .all()
        .iter()
        .filter(|(_, app)| app.oldest > EventTime::default())
        .flat_map(|(pid, app)| {
            app.partitions(partitions).map(|at| gone((at, *pid), app.oldest)).collect::<Vec<_>>()
        })
        .collect();
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    let Ok(parts) = parts(tables) else { return };
    for (first, last) in parts {
        if swept.must_end.load(Ordering::Relaxed) {
            return;
        }
        let holds = |(from, end): &(Key, Key)| {
            last.is_none_or(|last| *from <= last) && first.is_none_or(|first| *end > first)
        };
        if gone.iter().any(holds) {
            tables.db.compact_range_cf_opt(tables.events(), first, last, &options);
        }
    }
    let _putting = swept.putting.lock().unwrap_or_else(PoisonError::into_inner);
    let left = swept.bytes.load(Ordering::Relaxed).saturating_sub(before);
    swept.bytes.store(left, Ordering::Relaxed);
    let mut batch = WriteBatch::default();
    meta::put_swept(&mut batch, tables, left);
    // Otherwise it is done once more after the next start.
    let _ = tables.db.write(batch);
}

/// The rows of an app in a partition that have gone: from the first key, before the second.
fn gone((partition, pid): (u16, Pid), oldest: EventTime) -> (Key, Key) {
    let from = |time| key::row_from(partition, pid, time);
    (from(EventTime::default()), from(oldest))
}

/// The keys by the files of the lowest level: each part is compacted in a second or so, and all
/// together once.
fn parts(tables: &Tables) -> Result<Vec<Part>, StoreError> {
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
