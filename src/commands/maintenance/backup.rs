//! `adtrail backup`: copies a checkpoint of the store into a directory of backups.
//!
//! If a service runs, it only creates the checkpoint, and this command copies it. So DIR is resolved and written with
//! the working directory and permissions of this command, and a backup continues if the service ends.

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
use store::embedded::checkpoint::{self, StoreContents};
use store::embedded::{Embedded, open_for_reading};
use store::maintenance::backup::{Archive, Manifest};

use crate::cli::Backup;
use crate::commands::temp_files::TempPath;
use crate::commands::{
    UsageError, canonical_path, copy_progress, load, require_embedded, write_line,
};
use crate::service::control_socket;
use crate::timing::Timing;

pub fn run(options: &Backup, timing: Timing) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_embedded(&config, "HBase has snapshots of its tables")?;
    require_elsewhere(&options.dir, &config.store.path)?;
    require_store(&config.store.path)?;
    let archive = Archive::create(&options.dir)?;
    let _partial = TempPath::new(&archive.partial())?;
    let time = Timestamp::now().to_string();
    let checkpoint = Checkpoint::take(&config, timing)?;
    let plan = archive.plan(&checkpoint.path)?;
    let store = config::Store { path: checkpoint.path.clone(), ..config.store.clone() };
    let contents = StoreContents::read(&store)?;
    let (manifest, new) = archive.add(plan, &contents, time, &mut copy_progress())?;
    drop(checkpoint);
    let mut line = line(&manifest);
    line["new_files"] = new.files.into();
    line["new_bytes"] = new.bytes.into();
    write_line(&line)?;
    let newest = options.keep.map_or(usize::MAX, |keep| keep as usize);
    archive.keep(newest).with_context(|| {
        format!("backup {} is complete, but old backups were not removed", manifest.backup)
    })
}

/// Returns a backup's line for standard output.
pub fn line(manifest: &Manifest) -> Value {
    let amount = manifest.amount();
    json!({
        "backup": manifest.backup,
        "time": manifest.time,
        "rows": manifest.rows,
        "positions": manifest.positions,
        "files": amount.files,
        "bytes": amount.bytes,
    })
}

/// Rejects a backup directory inside the store, or a store inside the backup directory.
pub fn require_elsewhere(dir: &Path, store: &Path) -> Result<(), UsageError> {
    let (Some(dir), Some(store)) = (canonical_path(dir), canonical_path(store)) else {
        return Ok(());
    };
    if dir.starts_with(&store) || store.starts_with(&dir) {
        let (dir, store) = (dir.display(), store.display());
        return Err(UsageError(format!(
            "DIR: must neither be inside the store nor contain it: {dir}, {store}"
        )));
    }
    Ok(())
}

/// Checks that the store exists, since opening a missing one for writing would create it.
fn require_store(path: &Path) -> Result<(), StoreError> {
    if path.join("CURRENT").exists() {
        Ok(())
    } else {
        Err(StoreError::Missing { path: path.into() })
    }
}

/// A checkpoint of the store, removed on drop, SIGINT and SIGTERM.
struct Checkpoint {
    path: PathBuf,
    _temp: TempPath,
    /// Prevents a service that starts meanwhile from removing the checkpoint.
    _lock: File,
    /// Prevents the service that created the checkpoint from removing it.
    _service: Option<UnixStream>,
}

impl Checkpoint {
    fn take(config: &Config, timing: Timing) -> anyhow::Result<Self> {
        let store = &config.store.path;
        let started = Instant::now();
        loop {
            if let Some(service) = control_socket::request_checkpoint(store)? {
                return Self::new(store, Some(service));
            }
            // Check the WAL first: opening for writing truncates a damaged one, and the backup would lack the rest.
            open_for_reading(&config.store)?;
            match Embedded::open(&config.store, &config.policy) {
                Ok(embedded) => {
                    embedded.checkpoints().take()?;
                    return Self::new(store, None);
                }
                // A service that is starting or stopping has the store open but does not listen.
                Err(StoreError::InUse { .. })
                    if started.elapsed() < timing.backup_store_timeout =>
                {
                    thread::sleep(timing.backup_retry_interval);
                }
                Err(error @ StoreError::InUse { .. }) => {
                    return Err(error)
                        .context("the process that uses the store accepts no backup requests");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn new(store: &Path, service: Option<UnixStream>) -> anyhow::Result<Self> {
        let path = checkpoint::folder(store);
        let temp = TempPath::new(&path)?;
        let lock = checkpoint::lock(store)?;
        Ok(Self { path, _temp: temp, _lock: lock, _service: service })
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        if let Err(error) = checkpoint::remove(&self.path) {
            tracing::warn!(%error, "the checkpoint cannot be removed; it takes space until the next backup");
        }
    }
}
