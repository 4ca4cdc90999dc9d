//! Where rows and state are kept.

use std::path::PathBuf;

use attribution::policy::DAY_MS;

use crate::duration;
use crate::error::Problem;
use crate::section::Section;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Relative to the working directory.
    pub path: PathBuf,
    /// Fixed when the store is created.
    pub partitions: u16,
    /// Of rows, by event time. `None`: kept for ever.
    pub retention_ms: Option<u64>,
}

pub(crate) fn read(store: &mut Section<'_>) -> Store {
    store.text("kind", parse_kind);
    store.table("hbase", read_hbase);
    let retention_ms = store.text("retention", duration::parse_ms_or_off);
    Store {
        path: store.text("path", parse_path).unwrap_or("adtrail-data".into()),
        partitions: store.integer("partitions", 1..=65_535).unwrap_or(64),
        retention_ms: retention_ms.unwrap_or(Some(400 * DAY_MS)),
    }
}

fn parse_kind(text: &str) -> Result<(), Problem> {
    match text {
        "embedded" => Ok(()),
        "hbase" => Err(r#"not supported by this version; use "embedded""#.into()),
        _ => Err(r#"expected "embedded""#.into()),
    }
}

fn parse_path(text: &str) -> Result<PathBuf, Problem> {
    if text.is_empty() { Err("expected the path of a directory".into()) } else { Ok(text.into()) }
}

/// Checked, so that a file can be shared with a version that has this store; `kind` says that
/// this one has not.
fn read_hbase(hbase: &mut Section<'_>) {
    let filled = |text: &str| {
        if text.is_empty() { Err("expected a text that is not empty".into()) } else { Ok(()) }
    };
    hbase.texts("servers", filled);
    hbase.text("prefix", filled);
}
