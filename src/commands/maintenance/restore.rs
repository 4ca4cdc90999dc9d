//! `adtrail restore`: recreates the store from a backup.

use anyhow::bail;
use store::StoreError;
use store::maintenance::backup::{Archive, Manifest, Target};

use super::backup::{line, require_elsewhere};
use crate::cli::Restore;
use crate::commands::temp_files::TempPath;
use crate::commands::{UsageError, copy_progress, load, require_embedded, write_line};
use crate::counted::counted;

pub fn run(options: &Restore) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_embedded(&config, "HBase has snapshots of its tables")?;
    require_elsewhere(&options.dir, &config.store.path)?;
    let archive = Archive::open(&options.dir)?;
    let backups = archive.backups()?;
    if options.list {
        return list(&archive, &backups);
    }
    let Some(newest) = backups.last() else {
        bail!("no complete backup in this directory: {}", options.dir.display());
    };
    let backup = options.backup.unwrap_or(*newest);
    let manifest = archive.manifest(backup)?.ok_or_else(|| unknown(backup, &backups))?;
    let store = &config.store;
    if manifest.partitions != store.partitions {
        let (path, found, configured) =
            (options.dir.clone(), manifest.partitions, store.partitions);
        return Err(StoreError::WrongPartitions { path, found, configured }.into());
    }
    restore(&archive, &manifest, store)?;
    write_line(&line(&manifest))
}

fn restore(archive: &Archive, manifest: &Manifest, store: &config::Store) -> anyhow::Result<()> {
    let target = Target::new(&store.path)?;
    let _temp = TempPath::new(&store.path)?;
    archive.restore(manifest, &target, &mut copy_progress())?;
    Ok(target.finish(|| manifest.check(store))?)
}

fn unknown(backup: u32, known: &[u32]) -> UsageError {
    const SHOWN_MAX: usize = 20;
    let newest = known.iter().rev().take(SHOWN_MAX).map(u32::to_string);
    let shown = newest.collect::<Vec<_>>().join(", ");
    let count = counted(known.len(), "backup");
    UsageError(format!("--backup: no backup {backup}; {count}, newest first: {shown}"))
}

fn list(archive: &Archive, backups: &[u32]) -> anyhow::Result<()> {
    for backup in backups {
        if let Some(manifest) = archive.manifest(*backup)? {
            write_line(&line(&manifest))?;
        }
    }
    Ok(())
}
