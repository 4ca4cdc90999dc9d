//! Java programs, downloaded with Maven.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::{cache_dir, run_ok};

/// Returns the cache directory `name` with the result of the Maven goal. Runs the goal if the directory is missing
/// or was created from another POM.
pub fn resolve(name: &str, pom: &str, goal: &[&str]) -> PathBuf {
    let dir = cache_dir().join(name);
    let is_current = || fs::read_to_string(dir.join("pom.xml")).is_ok_and(|found| found == pom);
    if is_current() {
        return dir;
    }
    fs::create_dir_all(cache_dir()).expect("the cache directory is created");
    // Only one process may run the goal: tests that start together all find the directory missing.
    let lock =
        File::create(cache_dir().join(format!("{name}.lock"))).expect("the lock file is created");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock is acquired");
    if is_current() {
        return dir;
    }
    // Built in a temporary directory and renamed, so that an interrupted run leaves no partial result.
    let prefix = format!("{name}-");
    let temporary = TempDir::with_prefix_in(prefix, cache_dir()).expect("the directory is created");
    fs::write(temporary.path().join("pom.xml"), pom).expect("the file is written");
    run_ok(Command::new("mvn").current_dir(temporary.path()).args(["-B", "-q"]).args(goal), b"");
    let _ = fs::remove_dir_all(&dir);
    fs::rename(temporary.path(), &dir).expect("the directory is renamed");
    dir
}
