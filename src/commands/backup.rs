//! `adtrail backup`: a checkpoint of the store, by the service that runs it or without one, put
//! into a directory of backups.
//!
//! The service makes the checkpoint, and this command copies it: so DIR is this command's, with its
//! working directory and its permissions, and a service that ends meanwhile takes nothing along.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use config::Config;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::StoreError;
use store::embedded::checkpoint::{self, Moment};
use store::embedded::{Embedded, open_for_reading};
use store::maintenance::backup::{Amount, Archive, Manifest};

use super::temp_files::Leftover;
use super::{WrongUse, copy_progress, load, require_embedded};
use crate::cli::Backup;
use crate::service::control_socket;
use crate::timing::Timing;

pub fn run(options: &Backup, timing: Timing) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_embedded(&config, "HBase has snapshots of its tables")?;
    require_elsewhere(&options.dir, &config.store.path)?;
    require_store(&config.store.path)?;
    let archive = Archive::make(&options.dir)?;
    let _partial = Leftover::new(&archive.partial()).context("signals can not be listened for")?;
    let time = Timestamp::now().to_string();
    let taken = Taken::of(&config, timing)?;
    let plan = archive.plan(&taken.path)?;
    let moment = Moment::read(&config::Store { path: taken.path.clone(), ..config.store.clone() })?;
    let (page, new) = archive.add(plan, &moment, time, &mut copy_progress::Progress::new())?;
    drop(taken);
    super::write_line(&taken_line(&page, new))?;
    let newest = options.keep.map_or(usize::MAX, |keep| keep as usize);
    archive.keep(newest).with_context(|| {
        format!("backup {} is whole, but what is no longer needed was not removed", page.backup)
    })
}

fn taken_line(page: &Manifest, new: Amount) -> Value {
    let mut line = line(page);
    line["new_files"] = new.files.into();
    line["new_bytes"] = new.bytes.into();
    line
}

/// What standard output has of a backup.
pub fn line(page: &Manifest) -> Value {
    let amount = page.amount();
    json!({
        "backup": page.backup,
        "time": page.time,
        "rows": page.rows,
        "positions": page.positions,
        "files": amount.files,
        "bytes": amount.bytes,
    })
}

/// Backups in the store's own directory would end with it, and the other way round.
/// One within the other would become a part of it.
pub fn require_elsewhere(dir: &Path, store: &Path) -> Result<(), WrongUse> {
    let (Some(dir), Some(store)) = (super::settled(dir), super::settled(store)) else {
        return Ok(());
    };
    if dir.starts_with(&store) || store.starts_with(&dir) {
        let (dir, store) = (dir.display(), store.display());
        return Err(WrongUse(format!(
            "DIR: expected a directory apart from the store: {dir}, {store}"
        )));
    }
    Ok(())
}

/// Opening one to write would make one.
fn require_store(path: &Path) -> Result<(), StoreError> {
    if path.join("CURRENT").exists() {
        Ok(())
    } else {
        Err(StoreError::Missing { path: path.into() })
    }
}

/// A checkpoint of the store, gone when this is dropped, or by a signal.
struct Taken {
    path: PathBuf,
    _leftover: Leftover,
    /// Keeps a service that starts meanwhile from removing it.
    _held: File,
    /// Keeps the service that made it from removing it.
    _service: Option<UnixStream>,
}

impl Taken {
    fn of(config: &Config, timing: Timing) -> anyhow::Result<Self> {
        let store = &config.store.path;
        let started = Instant::now();
        loop {
            if let Some(service) = control_socket::request_checkpoint(store)? {
                return Self::new(store, Some(service));
            }
            // Who writes would leave out what stands behind damage in the log: that is no backup.
            open_for_reading(&config.store)?;
            match Embedded::open(&config.store, &config.policy) {
                Ok(embedded) => {
                    embedded.checkpoints().take()?;
                    return Self::new(store, None);
                }
                // A service that starts or stops holds the store and does not listen.
                Err(StoreError::InUse { .. })
                    if started.elapsed() < timing.backup_store_patience =>
                {
                    thread::sleep(timing.backup_retry_interval);
                }
                Err(error @ StoreError::InUse { .. }) => {
                    return Err(error).context("who runs the store takes no requests for backups");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn new(store: &Path, service: Option<UnixStream>) -> anyhow::Result<Self> {
        let path = checkpoint::place(store);
        let leftover = Leftover::new(&path).context("signals can not be listened for")?;
        let held = checkpoint::hold(store)?;
        Ok(Self { path, _leftover: leftover, _held: held, _service: service })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = checkpoint::remove(&self.path) {
            tracing::warn!(%error, "the checkpoint stays until the next backup, and takes space");
        }
    }
}
