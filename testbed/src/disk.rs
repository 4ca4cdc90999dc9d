//! A small disk for a directory, which tests can fill.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{eventually, run_ok};

/// Writes zeros over a page in the middle of every table file of a store that is larger than `bytes_min`.
pub fn damage_tables(store: &Path, bytes_min: u64) {
    let mut damaged = 0;
    for entry in fs::read_dir(store).unwrap() {
        let path = entry.unwrap().path();
        let bytes = path.metadata().unwrap().len();
        if path.extension().is_some_and(|extension| extension == "sst") && bytes > bytes_min {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 4096], bytes / 2).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no table has a file");
}

/// Returns the files of a store's WAL.
pub fn wal_files(store: &Path) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(store)
        .expect("the store can be read")
        .map(|file| file.expect("the entry can be read").path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "log"))
}

/// Flips a bit in the middle of a file.
pub fn flip_bit(file: &Path) {
    let mut bytes = fs::read(file).expect("the file is readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(file, bytes).expect("the file is writable");
}

/// A tmpfs, unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Creates the directory and mounts a disk of this size on it.
    pub fn at(dir: &Path, mib: u32) -> Self {
        fs::create_dir_all(dir).unwrap();
        let size = format!("size={mib}m");
        run_ok(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir), b"");
        Self { dir: dir.into() }
    }

    /// Fills the disk completely.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let mut chunk = vec![1; 1 << 20];
        while !chunk.is_empty() {
            match ballast.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    chunk.truncate(chunk.len() / 2);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Frees the space that [`Disk::fill`] has taken.
    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Remounts the disk read-only or writable. The kernel remounts a disk read-only after an I/O error. No process
    /// may have files open for writing.
    pub fn set_read_only(&self, is_read_only: bool) {
        let how = if is_read_only { "remount,ro" } else { "remount,rw" };
        run_ok(Command::new("mount").args(["-o", how]).arg(&self.dir), b"");
    }

    /// Limits the number of files that can still be created; `None` removes the limit.
    pub fn leave_files(&self, remaining: Option<u64>) {
        eventually("the limit of inodes is set", || {
            let (all, free) = self.files();
            let limit = remaining.map_or(100_000, |remaining| all - free + remaining);
            // Fails if another process has created a file meanwhile.
            let how = format!("remount,nr_inodes={limit}");
            let done = Command::new("mount").args(["-o", &how]).arg(&self.dir).status();
            let is_done = done.is_ok_and(|status| status.success());
            let free = self.files().1;
            let is_set = is_done && remaining.is_none_or(|remaining| remaining == free);
            if is_set { Ok(()) } else { Err(free) }
        });
    }

    /// Returns the total and the free number of inodes.
    fn files(&self) -> (u64, u64) {
        let mut stat = Command::new("stat");
        let text = run_ok(stat.args(["-f", "-c", "%c %d"]).arg(&self.dir), b"");
        let text = String::from_utf8(text).unwrap();
        let (all, free) = text.trim().split_once(' ').unwrap();
        (all.parse().unwrap(), free.parse().unwrap())
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazy, because a process may keep files open for a moment.
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
    }
}
