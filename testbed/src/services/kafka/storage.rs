//! Formats storage directories. The tool starts a JVM, so its result is cached per node id and copied.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{CLUSTER_ID, SHORT_RUN, jars, java};
use crate::run_ok;

/// Formats the directory that `log.dirs` of these settings names. `file` has the same settings.
pub fn format(file: &Path, settings: &str, users: &[String]) {
    // SCRAM users are records in the log, so they cannot be copied.
    if !users.is_empty() {
        return run_tool(file, users);
    }
    let node = value(settings, "node.id");
    let template = jars().join(format!("formatted-{node}"));
    let data = PathBuf::from(value(settings, "log.dirs"));
    if !template.exists() {
        make_template(&template, settings);
    }
    fs::create_dir_all(&data).expect("the directory is created");
    for entry in fs::read_dir(&template).expect("the formatted directory can be read") {
        let entry = entry.expect("the entry can be read");
        fs::copy(entry.path(), data.join(entry.file_name())).expect("the file is copied");
    }
}

/// Creates the template of a node. Its content depends only on the node id and the cluster id, because all brokers here
/// have fixed voters.
fn make_template(template: &Path, settings: &str) {
    let own = TempDir::with_prefix_in("formatting-", jars()).expect("the directory is created");
    let data = own.path().join("data");
    let set = |line: &str| match line.starts_with("log.dirs=") {
        true => format!("log.dirs={}\n", data.display()),
        false => format!("{line}\n"),
    };
    let file = own.path().join("server.properties");
    fs::write(&file, settings.lines().map(set).collect::<String>()).expect("the file is written");
    run_tool(&file, &[]);
    // An error means that another process has created it meanwhile.
    let _ = fs::rename(&data, template);
}

fn run_tool(file: &Path, users: &[String]) {
    let mut format = java("kafka.tools.StorageTool", SHORT_RUN);
    format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(file);
    format.args(users.iter().flat_map(|user| ["--add-scram", user]));
    run_ok(&mut format, b"");
}

fn value<'s>(settings: &'s str, key: &str) -> &'s str {
    let mut lines = settings.lines();
    lines
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .expect("the setting is present")
}
