//! An attribution of its own: a worker on a thread, over a store in a temporary folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, anyhow};
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use config::Config;
use store::StoreError;
use store::embedded::Embedded;
use store::reader::Reader;
use tempfile::TempDir;

use super::intake;
use crate::commands::temp_files::Leftover;

/// Batches that wait for the worker.
const QUEUE_BATCHES: usize = 2;

pub struct Replica {
    pub policy: Arc<Policy>,
    pub reader: Reader,
    /// `None` once no more comes.
    batches: Option<SyncSender<Vec<Fact>>>,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
    /// Dropped last: the store is in it.
    _folder: TempDir,
    _leftover: Leftover,
}

impl Replica {
    /// The attribution of all events of the files, and the number of lines that are none.
    pub fn of_files(config: &Config, paths: &[PathBuf]) -> anyhow::Result<(Self, u64)> {
        let mut replica = Self::start(config)?;
        let records_max = config.ingest.batch_records_max;
        let bad_lines =
            intake::read(paths, &config.policy, records_max, |facts| replica.take(facts))?;
        replica.finish()?;
        Ok((replica, bad_lines))
    }

    /// By these settings, but for the place of the store and what it forgets.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder can be made")?;
        let leftover = Leftover::new(folder.path()).context("signals can not be listened for")?;
        let settings = config.store.keeping_all(folder.path().join("store"));
        let embedded = Embedded::open(&settings, &config.policy)?;
        let reader = embedded.reader();
        let worker = Worker::new(embedded, Arc::clone(&config.policy));
        let (batches, queue) = sync_channel(QUEUE_BATCHES);
        let thread = Builder::new()
            .name("attribution".into())
            .spawn(move || work(worker, &queue))
            .context("no thread for attribution")?;
        Ok(Self {
            policy: Arc::clone(&config.policy),
            reader,
            batches: Some(batches),
            thread: Some(thread),
            _folder: folder,
            _leftover: leftover,
        })
    }

    pub fn take(&mut self, facts: Vec<Fact>) -> anyhow::Result<()> {
        match self.batches.as_ref().map(|batches| batches.send(facts)) {
            Some(Ok(())) => Ok(()),
            // Only an error ends the thread before that.
            _ => self.finish(),
        }
    }

    /// All has been taken: from here on the reader has the rows.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.batches = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("the attribution thread has panicked"))??;
        Ok(())
    }
}

/// A store must not be written while the process ends and its folder goes.
impl Drop for Replica {
    fn drop(&mut self) {
        // Whoever asked for the outcome has it; here something else has failed.
        let _ = self.finish();
    }
}

fn work(mut worker: Worker<Embedded>, queue: &Receiver<Vec<Fact>>) -> Result<(), StoreError> {
    for facts in queue {
        worker.process(Batch { facts, ..Batch::default() })?;
    }
    Ok(())
}
