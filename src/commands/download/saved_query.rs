//! The query of a partial file, saved beside it as a JSON object of names and values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use config::private_files;

use crate::commands::{UsageError, unwritable};

/// Maximum length of the file. The options that it holds are part of a command line, of at most 2 MiB by default.
const BYTES_MAX: u64 = 8 << 20;

/// Parameters that select the rows, by name: app, range, filters and so on.
pub type Query = BTreeMap<String, String>;

/// Returns the path with `ending` appended.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(ending);
    text.into()
}

pub fn write_query(part: &Path, query: &Query) -> anyhow::Result<()> {
    let path = beside(part, ".query");
    let mut text = serde_json::to_vec_pretty(query)?;
    text.push(b'\n');
    private_files::replace(&path)
        .and_then(|mut file| file.write_all(&text))
        .with_context(|| unwritable(&path))
}

/// Returns `None` if the query is missing or truncated.
///
/// # Errors
/// If it cannot be read, or another user could have written it.
pub fn read_query(part: &Path) -> anyhow::Result<Option<Query>> {
    let path = beside(part, ".query");
    let unreadable = || format!("cannot be read: {}", path.display());
    let file = match private_files::open(&path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(unreadable),
    };
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text).with_context(unreadable)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Checks that both queries are equal.
///
/// # Errors
/// If they differ; the error names every difference.
pub fn require_same(path: &Path, saved: &Query, query: &Query) -> Result<(), UsageError> {
    let text = |value: Option<&String>| value.map_or("none".into(), |value| format!("{value:?}"));
    let names: BTreeSet<_> = saved.keys().chain(query.keys()).collect();
    let differences: Vec<_> = names
        .into_iter()
        .map(|name| (name, saved.get(name), query.get(name)))
        .filter(|(_, saved, query)| saved != query)
        .map(|(name, saved, query)| {
            format!("{name} is {}, but {} is requested", text(saved), text(query))
        })
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(UsageError(format!(
        "--resume: {} belongs to another export: {}; without --resume the file is overwritten",
        path.display(),
        differences.join("; ")
    )))
}
