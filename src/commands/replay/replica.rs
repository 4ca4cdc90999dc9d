//! A worker on a thread, over a store in a temporary folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, anyhow};
use attribution::facts::event::Fact;
use attribution::ledger::Ledger;
use attribution::parallelism::Parallelism;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use config::Config;
use store::StoreError;
use store::embedded::Embedded;
use store::reader::Reader;
use tempfile::TempDir;

use super::intake;
use crate::commands::temp_files::TempPath;

const QUEUED_BATCHES_MAX: usize = 2;

pub struct ReplayRun {
    pub policy: Arc<Policy>,
    pub reader: Reader,
    /// `None` once all facts are sent.
    batches: Option<SyncSender<Vec<Fact>>>,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
    /// Dropped last: it contains the store.
    _folder: TempDir,
    _temp: TempPath,
}

impl ReplayRun {
    /// Attributes the events of files. Also returns the number of bad lines.
    pub fn from_files(config: &Config, paths: &[PathBuf]) -> anyhow::Result<(Self, u64)> {
        let mut run = Self::start(config)?;
        let Config { policy, ingest, .. } = config;
        let bad_lines = intake::read(paths, policy, ingest, |facts| run.send(facts))?;
        run.finish()?;
        Ok((run, bad_lines))
    }

    /// Starts the worker with these settings, but a temporary store without retention.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("the temporary folder cannot be created")?;
        let temp = TempPath::new(folder.path())?;
        let settings = config.store.keeping_all(folder.path().join("store"));
        let mut embedded = Embedded::open(&settings, &config.policy)?;
        let parallelism = Parallelism::new(config.workers);
        embedded.set_parallelism(parallelism);
        let reader = embedded.reader();
        let worker = Worker::new(embedded, Arc::clone(&config.policy));
        let worker = worker.with_parallelism(parallelism);
        let (batches, queue) = sync_channel(QUEUED_BATCHES_MAX);
        let thread = Builder::new()
            .name("attribution".into())
            .spawn(move || work(worker, &queue))
            .context("the attribution thread cannot be started")?;
        Ok(Self {
            policy: Arc::clone(&config.policy),
            reader,
            batches: Some(batches),
            thread: Some(thread),
            _folder: folder,
            _temp: temp,
        })
    }

    pub fn send(&mut self, facts: Vec<Fact>) -> anyhow::Result<()> {
        match self.batches.as_ref().map(|batches| batches.send(facts)) {
            Some(Ok(())) => Ok(()),
            // The thread has ended with an error.
            _ => self.finish(),
        }
    }

    /// Waits until all facts are attributed and the reader has the rows.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.batches = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("the attribution thread panicked"))??;
        Ok(())
    }
}

impl Drop for ReplayRun {
    /// Waits for the thread, which must not write while the folder is removed.
    fn drop(&mut self) {
        // An error that matters was returned by an earlier call.
        let _ = self.finish();
    }
}

fn work(mut worker: Worker<Embedded>, queue: &Receiver<Vec<Fact>>) -> Result<(), StoreError> {
    for facts in queue {
        worker.process_ahead(Batch { facts, ..Batch::default() })?;
    }
    worker.ledger_mut().wait_for_commit()
}
