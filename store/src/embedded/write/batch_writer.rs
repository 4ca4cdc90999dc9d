//! The thread that writes commits to RocksDB, one after the other, while the next batch is processed:
//! `docs/decisions/pipelined-commit.md` explains the design.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use rocksdb::{WriteBatch, WriteOptions};

use crate::StoreError;
use crate::embedded::tables::Tables;

/// Writes one batch at a time. The thread ends when this is dropped, which must be before the tables are.
pub struct BatchWriter {
    /// `None` once the thread is to end.
    batches: Option<SyncSender<Commit>>,
    outcomes: Receiver<Result<(), StoreError>>,
    /// A batch is being written. Stays true after an error.
    is_in_flight: bool,
    is_deferring: bool,
    /// The batch in flight, if its write is deferred.
    deferred: Option<Commit>,
    thread: Option<JoinHandle<()>>,
}

struct Commit {
    batch: WriteBatch,
    is_synced: bool,
}

impl BatchWriter {
    pub fn start(tables: &Tables) -> Result<Self, StoreError> {
        let (batches, queue) = sync_channel(1);
        let (results, outcomes) = sync_channel(1);
        let tables = tables.clone();
        let work = move || write_all(&tables, &queue, &results);
        let thread = Builder::new().name("adtrail-writer".into()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Writer {
            reason: format!("cannot be started: {error}"),
        })?;
        Ok(Self {
            batches: Some(batches),
            outcomes,
            is_in_flight: false,
            is_deferring: false,
            deferred: None,
            thread: Some(thread),
        })
    }

    /// From now on a batch is not written before it is waited for.
    pub fn defer(&mut self) {
        self.is_deferring = true;
    }

    /// Starts to write a batch. The one before must have been waited for. If it `is_synced`, no power failure takes it
    /// or a batch before it back, once it is written.
    ///
    /// # Errors
    /// If a write has failed.
    pub fn begin(&mut self, batch: WriteBatch, is_synced: bool) -> Result<(), StoreError> {
        self.is_in_flight = true;
        let commit = Commit { batch, is_synced };
        if self.is_deferring {
            self.deferred = Some(commit);
            return Ok(());
        }
        self.send(commit)
    }

    /// Waits until the batch in flight is written. Returns false if there is none.
    ///
    /// # Errors
    /// If a write has failed, this one or an earlier one.
    pub fn wait(&mut self) -> Result<bool, StoreError> {
        if !self.is_in_flight {
            return Ok(false);
        }
        if let Some(commit) = self.deferred.take() {
            self.send(commit)?;
        }
        self.outcomes.recv().map_err(|_| ended())??;
        self.is_in_flight = false;
        Ok(true)
    }

    fn send(&self, commit: Commit) -> Result<(), StoreError> {
        let is_sent = self.batches.as_ref().is_some_and(|batches| batches.send(commit).is_ok());
        if is_sent { Ok(()) } else { Err(ended()) }
    }
}

impl Drop for BatchWriter {
    /// Waits until the thread has written what it was sent.
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Errors are among the outcomes, and a panic has already been reported.
            let _ = thread.join();
        }
    }
}

fn write_all(
    tables: &Tables,
    commits: &Receiver<Commit>,
    outcomes: &SyncSender<Result<(), StoreError>>,
) {
    for Commit { batch, is_synced } in commits {
        config::crash_point!("commit-begun");
        let mut options = write_options();
        options.set_sync(is_synced);
        let outcome = tables.write(batch, &options);
        let has_failed = outcome.is_err();
        // The positions of a later batch would cover one that was not written.
        if outcomes.send(outcome).is_err() || has_failed {
            return;
        }
    }
}

/// Few commits sync the write-ahead log: a power failure that removes others from its end removes their positions too.
pub fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_memtable_insert_hint_per_batch(true);
    options
}

fn ended() -> StoreError {
    StoreError::Writer { reason: "has ended after an error".into() }
}

#[cfg(test)]
mod tests {
    use rocksdb::Options;

    use super::*;
    use crate::embedded::open::column_families::Limits;

    fn on_disk() -> (Tables, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        (tables, dir)
    }

    fn batch(tables: &Tables, value: &str) -> WriteBatch {
        let mut batch = WriteBatch::default();
        batch.put_cf(&tables.offsets(), "key", value);
        batch
    }

    fn stored(tables: &Tables) -> Option<Vec<u8>> {
        tables.db.get_cf(&tables.offsets(), "key").unwrap()
    }

    /// A batch that RocksDB refuses, because its table was dropped.
    fn refused(tables: &Tables) -> WriteBatch {
        tables.db.create_cf("dropped", &Options::default()).unwrap();
        let mut refused = WriteBatch::default();
        refused.put_cf(&tables.db.cf_handle("dropped").unwrap(), "key", "value");
        tables.db.drop_cf("dropped").unwrap();
        refused
    }

    #[test]
    fn batches_are_written_in_order() {
        let (tables, _dir) = on_disk();
        let mut writer = BatchWriter::start(&tables).unwrap();
        assert!(!writer.wait().unwrap(), "nothing is in flight");
        for value in ["1", "2", "3"] {
            writer.begin(batch(&tables, value), false).unwrap();
            assert!(writer.wait().unwrap());
            assert_eq!(stored(&tables).as_deref(), Some(value.as_bytes()));
            assert!(!writer.wait().unwrap(), "the batch is written");
        }
    }

    #[test]
    fn a_deferred_batch_is_written_when_it_is_waited_for() {
        let (tables, _dir) = on_disk();
        let mut writer = BatchWriter::start(&tables).unwrap();
        writer.defer();
        writer.begin(batch(&tables, "1"), false).unwrap();
        assert_eq!(stored(&tables), None);
        assert!(writer.wait().unwrap());
        assert_eq!(stored(&tables).as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn dropping_the_writer_waits_for_the_batch_in_flight() {
        let (tables, _dir) = on_disk();
        let mut writer = BatchWriter::start(&tables).unwrap();
        writer.begin(batch(&tables, "1"), false).unwrap();
        drop(writer);
        assert_eq!(stored(&tables).as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let (tables, _dir) = on_disk();
        let mut writer = BatchWriter::start(&tables).unwrap();
        writer.begin(refused(&tables), false).unwrap();
        let error = writer.wait().unwrap_err();
        assert!(matches!(error, StoreError::Engine(_)), "{error}");
        // The thread may not have ended yet. If it went on, it would have a batch to write, so no wait is for ever.
        let _ = writer.begin(batch(&tables, "1"), false);
        assert!(writer.wait().is_err(), "the thread has written a later batch");
        assert!(writer.wait().is_err(), "the batch was not written");
        drop(writer);
        assert_eq!(stored(&tables), None);
    }
}
