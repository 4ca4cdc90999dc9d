//! Java programs, downloaded with Maven.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

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
    // Built in a temporary directory and renamed, so that an interrupted run leaves no partial result.
    let prefix = format!("{name}-");
    let temporary = TempDir::with_prefix_in(prefix, cache_dir()).expect("a directory in the cache");
    fs::write(temporary.path().join("pom.xml"), pom).expect("the file is written");
    run_ok(Command::new("mvn").current_dir(temporary.path()).args(["-B", "-q"]).args(goal), b"");
    // Another process may have created it meanwhile.
    if fs::rename(temporary.path(), &dir).is_err() && !is_current() {
        let _ = fs::remove_dir_all(&dir);
        fs::rename(temporary.path(), &dir).expect("the directory is renamed");
    }
    dir
}
