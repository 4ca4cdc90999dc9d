//! A directory of backups.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::copy_file::copy;
use super::manifest::PageName;
use super::stored_file::{Source, StoredFile};
use super::{Amount, Manifest, Progress, Target, lock};
use crate::StoreError;
use crate::embedded::checkpoint::Moment;
use crate::fs::sync_folder;

/// Says what the directory is, and is locked by whoever works in it.
const MARK: &str = "adtrail-backups";
const MARK_TEXT: &str = "adtrail backups, format 1\n";
/// What is being written; there is one, as one at a time writes.
const PARTIAL: &str = "partial";
/// A new disk has it.
const OF_FILE_SYSTEMS: &str = "lost+found";

/// A directory of backups; nobody else writes it meanwhile.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    _lock: File,
}

/// What a new backup will consist of.
pub struct Plan {
    folder: PathBuf,
    /// With the piece that has it already.
    sources: Vec<(Source, Option<StoredFile>)>,
}

impl Archive {
    /// For writing; made if it is missing, readable by its owner alone: rows tell of people.
    ///
    /// # Errors
    /// [`StoreError::NoBackups`] of a directory that holds anything else.
    pub fn make(folder: &Path) -> Result<Self, StoreError> {
        let unwritable = || StoreError::file("written", folder);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable())?;
        let mark = folder.join(MARK);
        let is_other = |name: &str| name != MARK && name != OF_FILE_SYSTEMS;
        if !mark.exists() && names(folder)?.iter().any(|name| is_other(name)) {
            return Err(StoreError::NoBackups { path: folder.into() });
        }
        let unwritable = || StoreError::file("written", &mark);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = options.open(&mark).map_err(unwritable())?;
        lock::exclusive(&file, folder)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unwritable())?;
        if text.is_empty() {
            file.write_all(MARK_TEXT.as_bytes()).map_err(unwritable())?;
            file.sync_all().map_err(unwritable())?;
        } else if text != MARK_TEXT {
            return Err(StoreError::NoBackups { path: folder.into() });
        }
        let archive = Self { folder: folder.into(), _lock: file };
        let files = archive.files();
        fs::create_dir_all(&files).map_err(StoreError::file("written", &files))?;
        sync(&archive.folder)?;
        Ok(archive)
    }

    /// For reading, also where nothing can be written.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let mark = folder.join(MARK);
        let none = || StoreError::NoBackups { path: folder.into() };
        let mut file = match File::open(&mark) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                // Of a directory that is not there, that.
                return Err(folder
                    .read_dir()
                    .map_or_else(StoreError::file("read", folder), |_| none()));
            }
            Err(error) => return Err(StoreError::file("read", &mark)(error)),
        };
        lock::shared(&file, folder)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(StoreError::file("read", &mark))?;
        if text != MARK_TEXT {
            return Err(none());
        }
        Ok(Self { folder: folder.into(), _lock: file })
    }

    /// The backups' numbers, oldest first.
    pub fn backups(&self) -> Result<Vec<u32>, StoreError> {
        Ok(self.pages()?.into_iter().map(|page| page.backup).collect())
    }

    /// `None` if there is no such backup.
    pub fn page(&self, backup: u32) -> Result<Option<Manifest>, StoreError> {
        let name = self.pages()?.into_iter().find(|page| page.backup == backup);
        name.map(|name| self.read(name)).transpose()
    }

    /// The file that a backup is writing: to be removed if it is broken off.
    pub fn partial(&self) -> PathBuf {
        self.folder.join(PARTIAL)
    }

    /// What there is in the folder of a checkpoint, and what of it is here already.
    pub fn plan(&self, checkpoint: &Path) -> Result<Plan, StoreError> {
        let mut kept = self.kept()?;
        let mut sources = Vec::new();
        for name in names(checkpoint)? {
            let source = Source::of(&checkpoint.join(name))?;
            let piece = kept.remove(&source);
            sources.push((source, piece));
        }
        Ok(Plan { folder: checkpoint.into(), sources })
    }

    /// Copies the files that are missing, then writes the manifest. Also returns what was copied.
    pub fn add(
        &self,
        plan: Plan,
        moment: &Moment,
        time: String,
        progress: Progress<'_>,
    ) -> Result<(Manifest, Amount), StoreError> {
        let is_new = |(_, piece): &&(Source, Option<StoredFile>)| piece.is_none();
        let total = plan.sources.iter().filter(is_new).map(|(source, _)| source.bytes).sum();
        let mut copied = counted(total, progress);
        let (mut pieces, mut new) = (Vec::new(), Amount::default());
        for (source, piece) in plan.sources {
            pieces.push(match piece {
                Some(piece) => piece,
                None => {
                    new.add(source.bytes);
                    self.copy_in(&plan.folder, source, &mut copied)?
                }
            });
        }
        sync(&self.files())?;
        let backup = self.backups()?.last().map_or(1, |last| last + 1);
        let page = Manifest::new(backup, time, moment, &pieces);
        self.write(&page)?;
        Ok((page, new))
    }

    /// Forgets all backups but so many of the newest, and removes all files that none has, those
    /// too that a backup left which did not come to its end.
    pub fn keep(&self, newest: usize) -> Result<(), StoreError> {
        let pages = self.pages()?;
        let (old, kept) = pages.split_at(pages.len().saturating_sub(newest));
        let mut used = HashSet::new();
        for name in kept {
            // A page that can not be read may name any of the files: then all stay.
            used.extend(self.read(*name)?.pieces().unwrap_or_default());
        }
        old.iter().try_for_each(|name| remove(&self.folder.join(name.file())))?;
        sync(&self.folder)?;
        for name in names(&self.files())? {
            if !name.parse().is_ok_and(|piece| used.contains(&piece)) {
                remove(&self.files().join(name))?;
            }
        }
        Ok(())
    }

    /// Fills the target, each file compared with what was kept.
    pub fn restore(
        &self,
        page: &Manifest,
        target: &Target,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let pieces = page.pieces().unwrap_or_default();
        let mut copied = counted(page.amount().bytes, progress);
        // What is cut short or missing is told before anything is copied.
        pieces.iter().try_for_each(|piece| self.check_length(piece))?;
        for piece in &pieces {
            let from = self.files().join(piece.to_string());
            let (_, whole) = target.copy(&from, &piece.source.name, &mut copied)?;
            if whole != piece.whole {
                let what = "its bytes are not those that were written".into();
                return Err(StoreError::DamagedBackup { path: from, what });
            }
        }
        Ok(())
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    fn pages(&self) -> Result<Vec<PageName>, StoreError> {
        let names = names(&self.folder)?;
        let mut pages: Vec<_> = names.iter().filter_map(|name| PageName::parse(name)).collect();
        pages.sort_unstable();
        Ok(pages)
    }

    fn read(&self, name: PageName) -> Result<Manifest, StoreError> {
        Manifest::read(&self.folder.join(name.file()), name)
    }

    /// The files that are whole, as far as their lengths tell.
    fn kept(&self) -> Result<BTreeMap<Source, StoredFile>, StoreError> {
        let names = names(&self.files())?;
        let pieces = names.iter().filter_map(|name| name.parse::<StoredFile>().ok());
        let whole = pieces.filter(|piece| self.check_length(piece).is_ok());
        Ok(whole.map(|piece| (piece.source.clone(), piece)).collect())
    }

    fn check_length(&self, piece: &StoredFile) -> Result<(), StoreError> {
        let path = self.files().join(piece.to_string());
        let what = match path.metadata() {
            Ok(found) if found.len() == piece.source.bytes => return Ok(()),
            Ok(found) => format!("it has {} of {} bytes", found.len(), piece.source.bytes),
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
            return Err(StoreError::corrupt(format!("{} has changed", from.display())));
        }
        let piece = StoredFile { source, whole };
        let path = self.files().join(piece.to_string());
        fs::rename(&partial, &path).map_err(StoreError::file("written", &path))?;
        Ok(piece)
    }

    /// The name is given once all is on the disk: there is the whole backup, or none.
    fn write(&self, page: &Manifest) -> Result<(), StoreError> {
        let partial = self.partial();
        let failed = || StoreError::file("written", &partial);
        let (name, text) = page.encode().map_err(|error| failed()(error.into()))?;
        let mut file = File::create(&partial).map_err(failed())?;
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

/// The names in a folder, in order; of those that are no text nobody here knows any.
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
