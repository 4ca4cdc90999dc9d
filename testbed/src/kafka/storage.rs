//! The storage format step, which costs a JVM: done once for each node's number, and copied from then on.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::run_ok;
use super::{CLUSTER_ID, jars, java};

/// Formats the folder that `log.dirs` of these settings, which are in the file, names.
pub fn format(file: &Path, settings: &str, users: &[String]) {
    // Users are records in the log.
    if !users.is_empty() {
        return run_tool(file, users);
    }
    let node = value(settings, "node.id");
    let template = jars().join(format!("formatted-{node}"));
    let data = PathBuf::from(value(settings, "log.dirs"));
    if !template.exists() {
        make_template(&template, settings);
    }
    fs::create_dir_all(&data).expect("a folder");
    for entry in fs::read_dir(&template).expect("the formatted folder") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), data.join(entry.file_name())).expect("a copy");
    }
}

/// What is written depends on the node's number and the cluster's id alone, as all brokers here have fixed voters.
fn make_template(template: &Path, settings: &str) {
    let own = TempDir::with_prefix_in("formatting-", jars()).expect("a folder in the cache");
    let data = own.path().join("data");
    let set = |line: &str| match line.starts_with("log.dirs=") {
        true => format!("log.dirs={}\n", data.display()),
        false => format!("{line}\n"),
    };
    let file = own.path().join("server.properties");
    fs::write(&file, settings.lines().map(set).collect::<String>()).expect("a file");
    run_tool(&file, &[]);
    // An error means that another process was faster.
    let _ = fs::rename(&data, template);
}

fn run_tool(file: &Path, users: &[String]) {
    let mut format = java("kafka.tools.StorageTool", &[]);
    format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(file);
    format.args(users.iter().flat_map(|user| ["--add-scram", user]));
    run_ok(&mut format, b"");
}

fn value<'s>(settings: &'s str, key: &str) -> &'s str {
    let mut lines = settings.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect("a setting of brokers")
}
