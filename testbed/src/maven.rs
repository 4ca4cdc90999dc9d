//! Java programs, as Maven brings them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{cache_dir, run_ok};

/// The folder `name` of the cache with what the goal makes of the POM: done when it is not there,
/// or is of another POM.
pub fn resolve(name: &str, pom: &str, goal: &[&str]) -> PathBuf {
    let dir = cache_dir().join(name);
    let is_there = || fs::read_to_string(dir.join("pom.xml")).is_ok_and(|found| found == pom);
    if is_there() {
        return dir;
    }
    fs::create_dir_all(cache_dir()).expect("the cache folder");
    // Complete or not there: a run that is stopped leaves no half of it.
    let prefix = format!("{name}-");
    let fresh = TempDir::with_prefix_in(prefix, cache_dir()).expect("a folder in the cache");
    fs::write(fresh.path().join("pom.xml"), pom).expect("a file");
    run_ok(Command::new("mvn").current_dir(fresh.path()).args(["-B", "-q"]).args(goal), b"");
    // Another process may have been faster.
    if fs::rename(fresh.path(), &dir).is_err() && !is_there() {
        let _ = fs::remove_dir_all(&dir);
        fs::rename(fresh.path(), &dir).expect("the folder can be renamed");
    }
    dir
}
