//! The example producers against a real Kafka and a real registry, each run with the command in its first lines: their
//! events are attributed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testbed::kafka::Kafka;
use testbed::registry::Registry;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{cache_dir, rows, run_ok};

/// Copies the examples and the schemas, and links the packages that the examples import.
fn examples() -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = TempDir::with_prefix("adtrail-examples-").expect("the folder is created");
    for folder in ["examples/producers", "schemas/avro"] {
        let copy = dir.path().join(folder);
        fs::create_dir_all(&copy).expect("the folder is created");
        for entry in fs::read_dir(root.join(folder)).expect("the folder exists") {
            let file = entry.expect("the entry can be read").path();
            if file.is_file() {
                fs::copy(&file, copy.join(file.file_name().expect("the file has a name")))
                    .expect("the file is copied");
            }
        }
    }
    let packages = cache_dir().join("node/node_modules");
    assert!(packages.is_dir(), "no {packages:?}: scripts/install --tests installs it");
    symlink(packages, dir.path().join("examples/producers/node_modules"))
        .expect("the link is created");
    dir
}

/// Returns the shell commands that follow a `$` in the file's first lines.
fn commands(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("the example is readable");
    let after_sign = |line: &str| Some(line.split_once(" $ ")?.1.trim().to_owned());
    text.lines().take(8).filter_map(after_sign).collect()
}

/// Links the jars of the testbed's Kafka in the layout of its tarball.
fn kafka_home(dir: &Path) -> PathBuf {
    let home = dir.join("kafka");
    fs::create_dir_all(&home).expect("the folder is created");
    // The caller has started a Kafka, so the jars exist.
    symlink(cache_dir().join("kafka"), home.join("libs")).expect("the link is created");
    home
}

/// Runs a command of an example, which produces a click and the activation `event_id`, and checks their format with
/// `peek`.
#[track_caller]
fn check(name: &str, file: &str, command: &str, event_id: &str, schema: &str) {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let dir = examples();
    let folder = dir.path().join("examples/producers");
    let printed = commands(&folder.join(file));
    let line = printed.iter().find(|line| line.split('#').next().map(str::trim) == Some(command));
    let line = line.unwrap_or_else(|| panic!("{file} does not say {command:?}, but {printed:?}"));
    let settings = format!("[registry]\nurls = [{:?}]\n{ONE_CAMPAIGN}", registry.url());
    let site = Site::new(kafka, name, 1, &settings);
    let service = site.start();

    let path = std::env::var("PATH").expect("PATH is set");
    let python = cache_dir().join("python/bin");
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(&folder);
    shell.env("PATH", format!("{}:{path}", python.display()));
    shell.env("KAFKA", kafka.brokers()).env("REGISTRY", registry.url());
    shell.env("CLICKS", &site.topics.clicks).env("ACTIVATIONS", &site.topics.activations);
    shell.env("KAFKA_HOME", kafka_home(dir.path()));
    run_ok(&mut shell, b"");

    service.await_read(2);
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
    let rows = rows::parse(&site.download("app-x", "2000-01-01", "2100-01-01", &[]));
    let found: Vec<_> = rows.iter().map(|row| (&*row["event_id"], &*row["status"])).collect();
    assert_eq!(found, [(event_id, "attributed")]);
    assert_eq!(rows[0]["spreadid"], "7");
    for topic in [&site.topics.clicks, &site.topics.activations] {
        let shown = run_ok(&mut site.command(&["peek", topic]), b"");
        let shown: Value = serde_json::from_slice(&shown).expect("the output is one line of JSON");
        let found = shown["schema"].as_str().expect("the schema is a string");
        assert!(found.starts_with(schema), "{topic}: {found}");
        assert_eq!(shown["key"], "app-x", "{shown}");
    }
}

#[test]
fn kcat_sends_json() {
    check("producers-kcat", "kcat.sh", "sh kcat.sh", "kcat-a-1", "json");
}

#[test]
fn java_sends_json() {
    let command = "java -cp \"$KAFKA_HOME/libs/*\" Json.java";
    check("producers-java", "Json.java", command, "java-a-1", "json");
}

#[test]
fn python_sends_avro_by_id() {
    check("producers-py-id", "avro.py", "python3 avro.py", "py-a-1", "avro id ");
}

#[test]
fn python_sends_avro_by_guid() {
    check("producers-py-guid", "avro.py", "python3 avro.py --header", "py-a-1", "avro guid ");
}

#[test]
fn javascript_sends_avro_by_id() {
    check("producers-js-id", "avro.mjs", "node avro.mjs", "js-a-1", "avro id ");
}

#[test]
fn javascript_sends_avro_by_guid() {
    check("producers-js-guid", "avro.mjs", "node avro.mjs --header", "js-a-1", "avro guid ");
}

/// The tests install the version that the Python example names.
#[test]
fn the_documentation_shows_every_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/producers.md")).expect("the page is readable");
    let folder = root.join("examples/producers");
    for file in ["kcat.sh", "avro.py", "avro.mjs", "Json.java"] {
        assert!(page.contains(&format!("(../examples/producers/{file})")), "no link to {file}");
        for line in commands(&folder.join(file)) {
            let command = line.split(" #").next().unwrap_or(&line).trim();
            assert!(page.contains(command), "docs/producers.md does not say: {command}");
        }
    }
    let installed =
        fs::read_to_string(root.join("scripts/python-packages.txt")).expect("the list is readable");
    let python = commands(&folder.join("avro.py")).remove(0);
    let version = python.split("==").nth(1).expect("the version is present").trim_end_matches('\'');
    assert!(installed.contains(&format!("confluent-kafka=={version}\n")), "{version}");
}
