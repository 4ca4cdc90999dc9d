//! A directory of backups.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::private_files;

use super::copy_file::copy;
use super::manifest::ManifestName;
use super::stored_file::{Source, StoredFile};
use super::{Amount, Manifest, Progress, Target, lock};
use crate::StoreError;
use crate::embedded::checkpoint::StoreContents;
use crate::fs::sync_folder;

/// The file that identifies the directory. A process that uses the directory holds a lock on it.
const MARKER: &str = "adtrail-backups";
const MARKER_TEXT: &str = "adtrail backups, format 1\n";
/// The file that is being written. There is only one, as a single process writes at a time.
const PARTIAL: &str = "partial";
/// A folder that new file systems contain.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory of backups, locked so that no other process writes to it meanwhile.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    _lock: File,
}

/// The files of a new backup.
pub struct Plan {
    folder: PathBuf,
    /// Each file with the stored copy of it, if any.
    sources: Vec<(Source, Option<StoredFile>)>,
}

impl Archive {
    /// Opens the directory for writing. A missing one is created with mode 0700, an existing one is restricted to its
    /// owner, because rows contain personal data.
    ///
    /// # Errors
    /// [`StoreError::NoBackups`] if the directory holds anything else; an error if it belongs to another user.
    pub fn create(folder: &Path) -> Result<Self, StoreError> {
        let unwritable = || StoreError::file("written", folder);
        private_files::create_folder(folder).map_err(unwritable())?;
        let marker = folder.join(MARKER);
        let is_other = |name: &str| name != MARKER && name != LOST_AND_FOUND;
        if !marker.exists() && names(folder)?.iter().any(|name| is_other(name)) {
            return Err(StoreError::NoBackups { path: folder.into() });
        }
        private_files::private_folder(folder).map_err(unwritable())?;
        let unwritable = || StoreError::file("written", &marker);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file =
            private_files::open_unfollowed(&marker, &mut options).map_err(unwritable())?;
        lock::exclusive(&file, folder)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unwritable())?;
        if text.is_empty() {
            file.write_all(MARKER_TEXT.as_bytes()).map_err(unwritable())?;
            file.sync_all().map_err(unwritable())?;
        } else if text != MARKER_TEXT {
            return Err(StoreError::NoBackups { path: folder.into() });
        }
        let archive = Self { folder: folder.into(), _lock: file };
        let files = archive.files();
        private_files::private_folder(&files).map_err(StoreError::file("written", &files))?;
        sync(&archive.folder)?;
        Ok(archive)
    }

    /// Opens the directory for reading, which needs no permission to write.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let marker = folder.join(MARKER);
        let none = || StoreError::NoBackups { path: folder.into() };
        let mut file = match File::open(&marker) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                // If the directory itself is missing, that is the error.
                return Err(folder
                    .read_dir()
                    .map_or_else(StoreError::file("read", folder), |_| none()));
            }
            Err(error) => return Err(StoreError::file("read", &marker)(error)),
        };
        lock::shared(&file, folder)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(StoreError::file("read", &marker))?;
        if text != MARKER_TEXT {
            return Err(none());
        }
        Ok(Self { folder: folder.into(), _lock: file })
    }

    /// The numbers of all backups, oldest first.
    pub fn backups(&self) -> Result<Vec<u32>, StoreError> {
        Ok(self.manifests()?.into_iter().map(|name| name.backup).collect())
    }

    /// Reads the manifest of a backup; `None` if the backup does not exist.
    pub fn manifest(&self, backup: u32) -> Result<Option<Manifest>, StoreError> {
        let name = self.manifests()?.into_iter().find(|name| name.backup == backup);
        name.map(|name| self.read(name)).transpose()
    }

    /// The file that a backup is writing. The caller removes it if the backup is interrupted.
    pub fn partial(&self) -> PathBuf {
        self.folder.join(PARTIAL)
    }

    /// Lists the files of a checkpoint, each with its stored copy if there is one.
    pub fn plan(&self, checkpoint: &Path) -> Result<Plan, StoreError> {
        let mut stored = self.stored_files()?;
        let mut sources = Vec::new();
        for name in names(checkpoint)? {
            let source = Source::of(&checkpoint.join(name))?;
            let file = stored.remove(&source);
            sources.push((source, file));
        }
        Ok(Plan { folder: checkpoint.into(), sources })
    }

    /// Copies the missing files, then writes the manifest. Also returns the amount that was copied.
    pub fn add(
        &self,
        plan: Plan,
        contents: &StoreContents,
        time: String,
        progress: Progress<'_>,
    ) -> Result<(Manifest, Amount), StoreError> {
        let is_new = |(_, file): &&(Source, Option<StoredFile>)| file.is_none();
        let total = plan.sources.iter().filter(is_new).map(|(source, _)| source.bytes).sum();
        let mut copied = counted(total, progress);
        let (mut files, mut new) = (Vec::new(), Amount::default());
        for (source, file) in plan.sources {
            files.push(match file {
                Some(file) => file,
                None => {
                    new.add(source.bytes);
                    self.copy_in(&plan.folder, source, &mut copied)?
                }
            });
        }
        sync(&self.files())?;
        let backup = self.backups()?.last().map_or(1, |last| last + 1);
        let manifest = Manifest::new(backup, time, contents, &files);
        self.write(&manifest)?;
        Ok((manifest, new))
    }

    /// Deletes all backups except for the `newest` newest, and all files that no backup needs, including those of
    /// interrupted backups.
    pub fn keep(&self, newest: usize) -> Result<(), StoreError> {
        let manifests = self.manifests()?;
        let (old, kept) = manifests.split_at(manifests.len().saturating_sub(newest));
        let mut used = HashSet::new();
        for name in kept {
            // An unreadable manifest may name any of the files, so an error leaves all of them in place.
            used.extend(self.read(*name)?.files().unwrap_or_default());
        }
        old.iter().try_for_each(|name| remove(&self.folder.join(name.file())))?;
        sync(&self.folder)?;
        for name in names(&self.files())? {
            if !name.parse().is_ok_and(|file| used.contains(&file)) {
                remove(&self.files().join(name))?;
            }
        }
        Ok(())
    }

    /// Copies the files of a backup to the target, and compares each with its checksum.
    pub fn restore(
        &self,
        manifest: &Manifest,
        target: &Target,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let files = manifest.files().unwrap_or_default();
        let mut copied = counted(manifest.amount().bytes, progress);
        // Missing and truncated files are reported before anything is copied.
        files.iter().try_for_each(|file| self.check_length(file))?;
        for file in &files {
            let from = self.files().join(file.to_string());
            let (_, whole) = target.copy(&from, &file.source.name, &mut copied)?;
            if whole != file.whole {
                let what = "checksum mismatch".into();
                return Err(StoreError::DamagedBackup { path: from, what });
            }
        }
        Ok(())
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// The names of all manifests, oldest first.
    fn manifests(&self) -> Result<Vec<ManifestName>, StoreError> {
        let names = names(&self.folder)?;
        let mut manifests: Vec<_> =
            names.iter().filter_map(|name| ManifestName::parse(name)).collect();
        manifests.sort_unstable();
        Ok(manifests)
    }

    fn read(&self, name: ManifestName) -> Result<Manifest, StoreError> {
        Manifest::read(&self.folder.join(name.file()), name)
    }

    /// The stored files that have their full length.
    fn stored_files(&self) -> Result<BTreeMap<Source, StoredFile>, StoreError> {
        let names = names(&self.files())?;
        let files = names.iter().filter_map(|name| name.parse::<StoredFile>().ok());
        let complete = files.filter(|file| self.check_length(file).is_ok());
        Ok(complete.map(|file| (file.source.clone(), file)).collect())
    }

    fn check_length(&self, file: &StoredFile) -> Result<(), StoreError> {
        let path = self.files().join(file.to_string());
        let what = match path.metadata() {
            Ok(found) if found.len() == file.source.bytes => return Ok(()),
            Ok(found) => format!("it has {} of {} bytes", found.len(), file.source.bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => "it is missing".into(),
            Err(error) => return Err(StoreError::file("read", &path)(error)),
        };
        Err(StoreError::DamagedBackup { path, what })
    }

    fn copy_in(
        &self,
        folder: &Path,
        source: Source,
        copied: &mut dyn FnMut(u64),
    ) -> Result<StoredFile, StoreError> {
        let (from, partial) = (folder.join(&source.name), self.partial());
        let (bytes, whole) = copy(&from, &partial, copied)?;
        if bytes != source.bytes {
            return Err(StoreError::corrupt(format!(
                "{} changed while being copied",
                from.display()
            )));
        }
        let file = StoredFile { source, whole };
        let path = self.files().join(file.to_string());
        fs::rename(&partial, &path).map_err(StoreError::file("written", &path))?;
        Ok(file)
    }

    /// Writes a manifest. It is renamed to its name after all is durable, so that a backup is complete or absent.
    fn write(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let partial = self.partial();
        let failed = || StoreError::file("written", &partial);
        let (name, text) = manifest.encode().map_err(|error| failed()(error.into()))?;
        let mut file = private_files::replace(&partial).map_err(failed())?;
        file.write_all(&text).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        let path = self.folder.join(name.file());
        fs::rename(&partial, &path).map_err(StoreError::file("written", &path))?;
        sync(&self.folder)
    }
}

/// Sums the sizes of chunks for `progress`.
fn counted(total: u64, progress: Progress<'_>) -> impl FnMut(u64) {
    let mut done = 0;
    move |bytes| {
        done += bytes;
        progress(done, total);
    }
}

/// The sorted names in a folder. Invalid UTF-8 is replaced: no file of a backup has such a name.
fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let unreadable = || StoreError::file("read", folder);
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(unreadable())? {
        names.push(entry.map_err(unreadable())?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path).map_err(StoreError::file("removed", path))
}

fn sync(folder: &Path) -> Result<(), StoreError> {
    sync_folder(folder).map_err(StoreError::file("written", folder))
}
