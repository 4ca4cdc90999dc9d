//! Class data sharing: a JVM starts faster if it maps an archive of its loaded classes. The archive is stored with
//! the program's jars in the cache, and created from the first JVM that runs without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug)]
pub struct Archive(PathBuf);

impl Archive {
    /// The archive `name` in the directory of a program.
    pub fn new(program: &Path, name: &str) -> Self {
        Self(program.join(format!("{name}.jsa")))
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Returns the JVM option that uses the archive or, if there is none, enables [`Archive::make`]. A JVM of another
    /// version ignores the archive.
    pub fn option(&self) -> String {
        match self.exists() {
            true => format!("-XX:SharedArchiveFile={}", self.0.display()),
            false => "-XX:+RecordDynamicDumpInfo".to_owned(),
        }
    }

    /// The option for a JVM that must not pause for as long as [`Archive::make`] takes.
    pub fn read_only_option(&self) -> String {
        match self.exists() {
            true => self.option(),
            false => "-Xshare:auto".to_owned(),
        }
    }

    /// Creates the archive from a running JVM if there is none. A failure only means that the next start is slow,
    /// too.
    pub fn make(&self, pid: u32) {
        if self.exists() {
            return;
        }
        let own = self.0.with_extension(format!("{pid}.tmp"));
        let mut dump = Command::new("jcmd");
        dump.args([&pid.to_string(), "VM.cds", "dynamic_dump"]).arg(&own);
        let status = dump.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) {
            // Atomic: another process never sees a partial archive.
            let _ = fs::rename(&own, &self.0);
        }
        let _ = fs::remove_file(&own);
    }
}
