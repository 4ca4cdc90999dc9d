//! Fetches a schema with all its references, as one text.

use std::collections::{HashSet, VecDeque};

use super::client::{Client, SCHEMA_BYTES_MAX};
use super::health::Monitor;
use super::inline_references::inline;
use super::response::{Failure, FailureKind, JSON_SCHEMA, Reference};
use super::schema_key::SchemaKey;

/// Maximum number of other schemas that a schema may use, directly or indirectly. Circular references terminate,
/// because each schema is fetched once.
const REFERENCES_MAX: usize = 100;

/// Returns the schema as one self-contained text, or [`JSON_SCHEMA`].
pub async fn fetch(client: &Client, key: SchemaKey, monitor: &Monitor) -> Result<String, Failure> {
    let path = key.path().ok_or_else(|| {
        FailureKind::Unknown.because("no registry has this id: ids go to 2147483647")
    })?;
    let mut bytes_left = SCHEMA_BYTES_MAX;
    let root = client.schema(&path, &mut bytes_left, monitor).await?;
    let mut pending = VecDeque::from(root.references);
    if pending.is_empty() {
        return Ok(root.text);
    }
    let mut seen = HashSet::new();
    let mut texts = Vec::new();
    while let Some(reference) = pending.pop_front() {
        let Reference { subject, version } = reference;
        if !seen.insert((subject.clone(), version)) {
            continue;
        }
        if seen.len() > REFERENCES_MAX {
            let reason = format!("the schema has more than {REFERENCES_MAX} references");
            return Err(FailureKind::Bad.because(reason));
        }
        let path = reference_path(&subject, version)?;
        let schema = client
            .schema(&path, &mut bytes_left, monitor)
            .await
            .map_err(|failure| reference_failure(failure, &subject, version))?;
        if schema.text == JSON_SCHEMA {
            let failure = FailureKind::Bad.because("it is a JSON Schema");
            return Err(reference_failure(failure, &subject, version));
        }
        pending.extend(schema.references);
        texts.push(schema.text);
    }
    inline(&root.text, &texts).map_err(|reason| FailureKind::Bad.because(reason))
}

/// Returns the path of a referenced schema. A subject may have any name, but `.` and `..` cannot be in a URL.
fn reference_path(subject: &str, version: i64) -> Result<[String; 4], Failure> {
    if matches!(subject, "" | "." | "..") {
        let reason =
            format!("the schema refers to the subject {subject:?}, which cannot be fetched");
        return Err(FailureKind::Bad.because(reason));
    }
    Ok(["subjects".into(), subject.into(), "versions".into(), version.to_string()])
}

/// Turns a final failure of a reference into one of the schema that refers to it.
fn reference_failure(failure: Failure, subject: &str, version: i64) -> Failure {
    if failure.is_transient() {
        return failure;
    }
    let reason = failure.reason;
    FailureKind::Bad.because(format!(
        "the schema refers to version {version} of the subject {subject:?}: {reason}"
    ))
}
