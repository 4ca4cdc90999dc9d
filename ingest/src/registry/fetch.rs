//! A schema and all that it refers to, as one text.

use std::collections::{HashSet, VecDeque};

use super::client::{Client, SCHEMA_BYTES_MAX};
use super::health::Monitor;
use super::inline_references::inline;
use super::response::{Failure, JSON_SCHEMA, Reference};
use super::schema_key::SchemaKey;

/// Other schemas that one may use, directly or not. Schemas that refer to each other end too, as
/// each is fetched once.
const REFERENCES_MAX: usize = 100;

/// The schema as one self-contained text, or [`JSON_SCHEMA`].
pub async fn fetch(client: &Client, key: SchemaKey, monitor: &Monitor) -> Result<String, Failure> {
    let path = key.path().ok_or_else(|| {
        Failure::Unknown("no registry has such a schema: ids go to 2147483647".into())
    })?;
    let mut bytes_left = SCHEMA_BYTES_MAX;
    let root = client.schema(&path, &mut bytes_left, monitor).await?;
    let mut wanted = VecDeque::from(root.references);
    if wanted.is_empty() {
        return Ok(root.text);
    }
    let mut seen = HashSet::new();
    let mut texts = Vec::new();
    while let Some(reference) = wanted.pop_front() {
        let Reference { subject, version } = reference;
        if !seen.insert((subject.clone(), version)) {
            continue;
        }
        if seen.len() > REFERENCES_MAX {
            let reason = format!("the schema refers to more than {REFERENCES_MAX} others");
            return Err(Failure::Bad(reason));
        }
        let path = path_of(&subject, version)?;
        let schema = client
            .schema(&path, &mut bytes_left, monitor)
            .await
            .map_err(|failure| of_reference(failure, &subject, version))?;
        if schema.text == JSON_SCHEMA {
            let failure = Failure::Bad("it is a JSON Schema".into());
            return Err(of_reference(failure, &subject, version));
        }
        wanted.extend(schema.references);
        texts.push(schema.text);
    }
    inline(&root.text, &texts).map_err(Failure::Bad)
}

/// A subject has any name. Two of them no URL can say, as they mean folders there.
fn path_of(subject: &str, version: i64) -> Result<[String; 4], Failure> {
    if matches!(subject, "" | "." | "..") {
        return Err(Failure::Bad(format!("the schema refers to the subject {subject:?}")));
    }
    Ok(["subjects".into(), subject.into(), "versions".into(), version.to_string()])
}

/// What is wrong with a schema that another one refers to is wrong with that one.
fn of_reference(failure: Failure, subject: &str, version: i64) -> Failure {
    match failure {
        Failure::Unknown(reason) | Failure::Bad(reason) => Failure::Bad(format!(
            "the schema refers to version {version} of the subject {subject:?}: {reason}"
        )),
        other => other,
    }
}
