//! Stores of past layouts.
//!
//! | layout | what it lacks | what is done when it is opened for writing |
//! |---|---|---|
//! | 1, 2 | all of the below, and how activations follow each other | made anew from its facts, of which none had expired |
//! | 3 to 5 | counts by cell, regions, where apps are, and what is told of rows | as of all that follow: they are counted |
//! | 6 | what rows and decisions tell of the touch and the activation | as below: older ones have empty cells |
//! | 7 | keys by a hash of ids that nobody can make collide | moved to their present keys, and counted |
//!
//! A store is made anew beside its place and moved there when it is whole; a process that ends
//! midway leaves the old one, and the next one begins again. The old one stays beside it, under a
//! name that says so: deleting it is for whoever has seen that all is well.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::facts::event::{Fact, Family};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::Progress;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};

use super::open::layout_version::LAYOUT_VERSION;
use super::open::meta::{self, Meta};
use super::tables::Tables;
use super::{Embedded, rekey};
use crate::StoreError;
use crate::layout::codec;
use crate::layout::hourly_counts::Cell;
use crate::layout::key::{self, FactPlace};

/// Before it, decisions were kept without what later ones go on from.
const WALKS_SINCE: u32 = 3;
const FACTS: usize = 5_000;
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Whether the store is to be made anew.
pub fn is_to_be_made_anew(meta: &Meta) -> bool {
    meta.layout < WALKS_SINCE
}

/// Makes the store anew from its facts, and takes its place. Nothing else may have it open.
pub fn anew(tables: Tables, settings: &config::Store, policy: &Policy) -> Result<(), StoreError> {
    let path = &settings.path;
    let (aside, old) = (beside(path, NEW), beside(path, OLD));
    if old.exists() {
        let reason = "it is there already, and the store of a past layout goes there; move it away";
        return Err(StoreError::Unwritable { path: old, reason: reason.into() });
    }
    remove(&aside)?;
    let fresh = config::Store { path: aside.clone(), ..settings.clone() };
    let mut worker = Worker::new(Embedded::open(&fresh, policy)?, Arc::new(policy.clone()));
    let mut facts = Vec::new();
    for family in Family::ALL {
        each_home(&tables, family, |key, value| {
            if policy.app(key.pid).is_none() {
                return Err(StoreError::UnknownApp { path: path.clone(), pid: key.pid.0 });
            }
            facts.push(codec::fact::decode(family, key.pid, value)?);
            if facts.len() == FACTS {
                give(&mut worker, std::mem::take(&mut facts))?;
            }
            Ok(())
        })?;
    }
    give(&mut worker, facts)?;
    let progress = Progress { positions: meta::positions(&tables)?, consumed_until: None };
    worker.process(Batch { facts: Vec::new(), progress })?;
    worker.ledger().flush()?;
    drop((worker, tables));
    rename(path, &old)?;
    rename(&aside, path)
}

/// Brings a store to the present layout where it is.
pub fn in_place(
    tables: &Tables,
    settings: &config::Store,
    meta: &Meta,
) -> Result<Cell, StoreError> {
    let (from, to) = (meta.layout, LAYOUT_VERSION);
    tracing::info!(from, to, "bringing the store to the present layout, nothing is read meanwhile");
    let (mut changes, mut told) = (0, Instant::now());
    let totals = rekey::all(tables, settings, &mut |written| {
        changes += written;
        if told.elapsed() > TOLD_EVERY {
            told = Instant::now();
            tracing::info!(changes, "the store is still being brought to the present layout");
        }
        Ok(())
    })?;
    tracing::info!(changes, "the store is of the present layout");
    Ok(totals)
}

fn give(worker: &mut Worker<Embedded>, facts: Vec<Fact>) -> Result<(), StoreError> {
    worker.process(Batch { facts, ..Batch::default() }).map(drop)
}

/// Ends what a process left between the two moves.
pub fn finish(path: &Path) -> Result<(), StoreError> {
    let (new, old) = (beside(path, NEW), beside(path, OLD));
    if !path.exists() && old.exists() && new.exists() { rename(&new, path) } else { Ok(()) }
}

const NEW: &str = "-new-layout";
const OLD: &str = "-old-layout";

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn each_home(
    tables: &Tables,
    family: Family,
    mut each: impl FnMut(&FactKey, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    tables.each_entry(tables.facts(family), &[], |key, value| match key::decode_fact(key) {
        Some(FactPlace::FactRecord { id, pid, tag }) => {
            each(&FactKey { family, id: MatchKey(id), pid, tag }, value)
        }
        _ => Ok(()),
    })
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(from, to).map_err(|error| failure(from, &error))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failure(path, &error)),
        _ => Ok(()),
    }
}

fn failure(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unwritable { path: path.into(), reason: error.to_string() }
}
