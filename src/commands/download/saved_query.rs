//! What a part of a file is of, in a file beside it: one object of names and values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use export::is_same_zone;

use crate::commands::WrongUse;

/// What rows are of, by names: app, range, filters and so on.
pub type Asked = BTreeMap<&'static str, String>;

/// The path with more at its end.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(ending);
    text.into()
}

pub fn unwritable(path: &Path) -> String {
    format!("can not be written: {}", path.display())
}

pub fn write_query(part: &Path, asked: &Asked) -> anyhow::Result<()> {
    let path = beside(part, ".query");
    let mut text = serde_json::to_vec_pretty(asked)?;
    text.push(b'\n');
    fs::write(&path, text).with_context(|| unwritable(&path))
}

/// `None` where there is none, or one that was cut.
pub fn read_query(part: &Path) -> Option<BTreeMap<String, String>> {
    serde_json::from_slice(&fs::read(beside(part, ".query")).ok()?).ok()
}

/// A zone may have several names.
fn is_same(name: &str, one: Option<&String>, other: Option<&String>) -> bool {
    let is_zone = || {
        name == "timezone" && one.zip(other).is_some_and(|(one, other)| is_same_zone(one, other))
    };
    one == other || is_zone()
}

/// # Errors
/// What differs.
pub fn require_same(
    path: &Path,
    query: &BTreeMap<String, String>,
    asked: &Asked,
) -> Result<(), WrongUse> {
    let asked: BTreeMap<String, String> =
        asked.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let names = query.keys().chain(asked.keys()).collect::<BTreeSet<_>>();
    let shown =
        |value: Option<&String>| value.map_or("none".to_owned(), |value| format!("{value:?}"));
    let differences: Vec<_> = names
        .into_iter()
        .filter(|name| !is_same(name, query.get(*name), asked.get(*name)))
        .map(|name| {
            format!("{name} is {}, asked for is {}", shown(query.get(name)), shown(asked.get(name)))
        })
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    let differences = differences.join("; ");
    let advice = "without --resume it is written anew";
    Err(WrongUse(format!(
        "--resume: {} is of another export: {differences}; {advice}",
        path.display()
    )))
}
