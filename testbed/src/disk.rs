//! A disk of its own for a folder, small enough to be filled.

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

/// In memory, and gone when dropped.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Of so many MiB, at a folder that is made for it.
    pub fn at(folder: &Path, mib: u32) -> Self {
        fs::create_dir_all(folder).unwrap();
        let size = format!("size={mib}m");
        run_ok(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder), b"");
        Self { folder: folder.into() }
    }

    /// Takes all the room that is left.
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

    /// Gives it back.
    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Whether nothing can be written, as after an error that the system found. Nobody may have files open
    /// to write.
    pub fn set_read_only(&self, is_read_only: bool) {
        let how = if is_read_only { "remount,ro" } else { "remount,rw" };
        run_ok(Command::new("mount").args(["-o", how]).arg(&self.folder), b"");
    }

    /// Leaves so many files that can be made, or any number.
    pub fn leave_files(&self, left: Option<u64>) {
        eventually("so many files are left", || {
            let (all, free) = self.files();
            let limit = left.map_or(100_000, |left| all - free + left);
            // Refused, if somebody has made one meanwhile.
            let how = format!("remount,nr_inodes={limit}");
            let done = Command::new("mount").args(["-o", &how]).arg(&self.folder).status();
            let is_done = done.is_ok_and(|status| status.success());
            let free = self.files().1;
            let is_so = is_done && left.is_none_or(|left| left == free);
            if is_so { Ok(()) } else { Err(free) }
        });
    }

    /// All that there may be, and those that can still be made.
    fn files(&self) -> (u64, u64) {
        let mut stat = Command::new("stat");
        let text = run_ok(stat.args(["-f", "-c", "%c %d"]).arg(&self.folder), b"");
        let text = String::from_utf8(text).unwrap();
        let (all, free) = text.trim().split_once(' ').unwrap();
        (all.parse().unwrap(), free.parse().unwrap())
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process may have files open there for a moment yet.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}
