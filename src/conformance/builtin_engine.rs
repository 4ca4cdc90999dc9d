//! The built-in engine: attributes like `replay`, but on the calling thread, so that rows can be exported at any time.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context;
use attribution::rules::policy::AppPolicy;
use attribution::worker::{Batch, Worker};
use config::Config;
use export::ExportQuery;
use ingest::files::ndjson::{Events, FileError};
use store::embedded::Embedded;
use store::reader::Reader;
use tempfile::TempDir;

pub struct BuiltinEngine {
    worker: Worker<Embedded>,
    reader: Reader,
    config: Config,
    /// Dropped last, after the store is closed.
    _folder: TempDir,
}

impl BuiltinEngine {
    /// Opens an empty store.
    pub fn open(mut config: Config) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("the temporary folder cannot be created")?;
        config.store = config.store.keeping_all(folder.path().join("store"));
        let embedded = Embedded::open(&config.store, &config.policy)?;
        let reader = embedded.reader();
        let worker = Worker::new(embedded, Arc::clone(&config.policy));
        Ok(Self { worker, reader, config, _folder: folder })
    }

    /// Attributes events, one per line. Returns the number of invalid lines.
    pub fn attribute(&mut self, lines: &str) -> anyhow::Result<u64> {
        let mut facts = Vec::new();
        let mut invalid = 0;
        let Config { policy, ingest, .. } = &self.config;
        for event in Events::new(lines.as_bytes(), policy, ingest.event_bytes_max) {
            match event {
                Ok(fact) => facts.push(fact),
                Err(FileError::Line { .. }) => invalid += 1,
                Err(error) => return Err(error.into()),
            }
        }
        while !facts.is_empty() {
            let rest = facts.split_off(facts.len().min(self.config.ingest.batch_records_max));
            let facts = std::mem::replace(&mut facts, rest);
            self.worker.process(Batch { facts, ..Batch::default() })?;
        }
        Ok(invalid)
    }

    /// Exports the rows of all apps, ordered by pid.
    pub fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let mut apps: Vec<&AppPolicy> = self.config.policy.apps().collect();
        apps.sort_by_key(|app| app.pid);
        let mut csv = Vec::new();
        let query = ExportQuery::all_time();
        export::write_rows(&self.reader, &apps, &query, &self.config.policy, |chunk| {
            csv.extend_from_slice(&chunk.bytes);
            ControlFlow::Continue(())
        })?;
        Ok(csv)
    }
}
