//! The names that users' scripts, dashboards and alerts depend on: commands with their options, exit codes, settings,
//! metrics. `surface.txt` lists them, so that changes are visible in review;
//! `ADTRAIL_WRITE_SURFACE=1` rewrites the file. Routes and columns: `export/src/tests/surface.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use adtrail::cli::Cli;
use clap::CommandFactory;
use testbed::adtrail::adtrail;

#[test]
fn surface_txt_lists_all_public_names() {
    let sections = [
        ("commands", commands()),
        ("exit codes", exit_codes()),
        ("settings", settings()),
        ("metrics", metrics()),
    ];
    let text: String =
        sections.map(|(title, names)| format!("# {title}\n{}\n\n", names.join("\n"))).concat();
    let path = Path::new("tests/commands/surface.txt");
    if std::env::var_os("ADTRAIL_WRITE_SURFACE").is_some() {
        fs::write(path, &text).expect("the file can be written");
    }
    let listed = fs::read_to_string(path).expect("the list can be read");
    let only_in = |text: &str, other: &str| -> Vec<String> {
        let other: BTreeSet<_> = other.lines().collect();
        text.lines().filter(|line| !other.contains(line)).map(str::to_owned).collect()
    };
    assert_eq!(
        (only_in(&listed, &text), only_in(&text, &listed)),
        (vec![], vec![]),
        "removed, added"
    );
}

/// Returns a line for each command and each of its options.
fn commands() -> Vec<String> {
    let mut cli = Cli::command();
    cli.build();
    let mut lines = Vec::new();
    collect_commands(&cli, "adtrail", &mut lines);
    lines
}

fn collect_commands(command: &clap::Command, path: &str, lines: &mut Vec<String>) {
    lines.push(path.to_owned());
    let is_specific =
        |argument: &&clap::Arg| argument.get_id() != "help" && argument.get_id() != "version";
    for argument in command.get_arguments().filter(is_specific) {
        if argument.is_global_set() && path != "adtrail" {
            continue;
        }
        let values: Vec<_> = argument
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        let values =
            if values.is_empty() { String::new() } else { format!(" = {}", values.join(" | ")) };
        lines.push(format!("{path} {argument}{values}"));
    }
    for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
        collect_commands(child, &format!("{path} {}", child.get_name()), lines);
    }
}

/// Returns the exit codes of processes that succeed and fail.
fn exit_codes() -> Vec<String> {
    let code = |args: &[&str]| {
        let output = adtrail().args(args).output().expect("adtrail starts");
        output.status.code().expect("the process is not killed")
    };
    vec![
        format!("{}: success", code(&["--version"])),
        format!("{}: failure", code(&["replay", "--config", "config/example.toml", "/nowhere"])),
        format!("{}: wrong use", code(&["run", "--config", "/nowhere/adtrail.toml"])),
        format!("{}: unknown option", code(&["run", "--no-such-option"])),
    ]
}

/// Returns all keys of the example. A test of `config` checks that the example is complete.
fn settings() -> Vec<String> {
    let example = fs::read_to_string("config/example.toml").expect("the example can be read");
    let is_setting =
        |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let lines = example.lines().map(|line| if is_setting(line) { &line[1..] } else { line });
    let table: toml::Table =
        lines.collect::<Vec<_>>().join("\n").parse().expect("the example is TOML");
    let mut keys = BTreeSet::new();
    collect_keys(&toml::Value::Table(table), "", &mut keys);
    keys.into_iter().collect()
}

fn collect_keys(value: &toml::Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                keys.insert(path.clone());
                if path == "kafka.librdkafka" {
                    // Any property of librdkafka.
                    continue;
                }
                collect_keys(value, &path, keys);
            }
        }
        toml::Value::Array(items) => items.iter().for_each(|item| collect_keys(item, path, keys)),
        _ => {}
    }
}

/// Returns every string literal of the code that is the name of a metric.
fn metrics() -> Vec<String> {
    let mut names = BTreeSet::new();
    for folder in ["callback/src", "collect/src", "export/src", "ingest/src", "src", "store/src"] {
        collect_metrics(Path::new(folder), &mut names);
    }
    names.into_iter().collect()
}

fn collect_metrics(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            collect_metrics(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = fs::read_to_string(&path).expect("the source file can be read");
            // A metric has a crate and a quantity, so the cookie `adtrail_session` is not a metric.
            let is_metric = |text: &&str| {
                text.starts_with("adtrail_")
                    && text.bytes().filter(|byte| *byte == b'_').count() > 1
                    && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            names.extend(code.split('"').filter(is_metric).map(str::to_owned));
        }
    }
}
