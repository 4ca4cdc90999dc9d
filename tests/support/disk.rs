//! A disk of its own for a folder, small enough to be filled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run_ok;

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
