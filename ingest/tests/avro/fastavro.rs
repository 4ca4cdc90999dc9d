//! The decoder against Python's fastavro, an implementation that shares no line with the one in Rust
//! that encodes here.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::{Case, cases, cases_count, decoded_on, from_json, outline, schemas};

const SCRIPT: &str = include_str!("fastavro.py");

/// The Python of the environment that `scripts/install --tests` makes.
fn python() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache")
    });
    base.join("adtrail/python/bin/python")
}

/// What fastavro makes of each record for whoever wants the published schema.
fn read_by_python(cases: &[Case]) -> Vec<Json> {
    let published = schemas();
    let lines = cases.iter().map(|case| {
        let (writer, reader) = (&case.schema, &published[case.family]);
        let record = STANDARD.encode(&case.datum);
        json!({"writer": writer, "reader": reader, "record": record}).to_string() + "\n"
    });
    let lines: String = lines.collect();
    let mut child = Command::new(python())
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{:?} (scripts/install --tests): {error}", python()));
    let mut input = child.stdin.take().expect("stdin is piped");
    let output = thread::scope(|scope| {
        // Beside reading, or both sides would wait for each other; what goes wrong is in the status.
        scope.spawn(move || input.write_all(lines.as_bytes()));
        child.wait_with_output().expect("Python can be waited for")
    });
    assert!(output.status.success(), "{}; its reason is above", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn schemas_that_grew_are_resolved_as_fastavro_does() {
    let cases: Vec<Case> = cases(cases_count()).collect();
    let read = read_by_python(&cases);
    assert_eq!(read.len(), cases.len());
    let mut facts = 0;
    for (case, event) in cases.iter().zip(read) {
        let Case { seed, family, schema, datum } = case;
        let expected = from_json(&event);
        facts += usize::from(expected.is_ok());
        let found = decoded_on(*family, schema, datum);
        assert_eq!(outline(found), outline(expected), "seed {seed}: {schema}");
    }
    assert!(facts > cases.len() / 10 * 9, "{facts} of {} are events", cases.len());
}
