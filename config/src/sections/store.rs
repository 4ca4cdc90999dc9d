//! Reads the settings of the store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attribution::facts::event::Pid;
use attribution::rules::policy::DAY_MS;

use super::hbase::{self, HBase};
use crate::parse::error::Problem;
use crate::parse::section::Section;
use crate::parse::{duration, size};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The HBase cluster of a shared store; `None` for an embedded one at [`Store::path`].
    pub hbase: Option<HBase>,
    /// Relative to the working directory.
    pub path: PathBuf,
    /// Fixed when the store is created.
    pub partitions: u16,
    /// Default retention of rows, by event time. `None` keeps them forever. [`Store::retention_of`] returns the
    /// retention of an app.
    pub retention_ms: Option<u64>,
    /// Number of bytes of rows above which a region is split.
    pub region_bytes_max: u64,
    /// Rows per second and partition of an app above which the app's fanout is doubled. `None` disables this.
    pub fanout_above: Option<u32>,
    /// Memory for the block cache and the write buffers together.
    pub memory_bytes: u64,
    /// Settings of apps that override these.
    pub apps: BTreeMap<Pid, AppStore>,
}

/// The storage settings of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppStore {
    /// Overrides the store's retention; `Some(None)` keeps rows forever.
    pub retention_ms: Option<Option<u64>>,
    /// Number of partitions over which new rows are distributed, a power of two. `None` means one, which
    /// [`Store::fanout_above`] can raise.
    pub fanout: Option<u16>,
}

impl Store {
    /// Returns these settings for an embedded store at another path, without retention.
    pub fn keeping_all(&self, path: PathBuf) -> Self {
        Self { hbase: None, path, retention_ms: None, apps: BTreeMap::new(), ..self.clone() }
    }

    /// Returns how long an app's rows are kept, by event time; `None` means forever.
    pub fn retention_of(&self, pid: Pid) -> Option<u64> {
        self.apps.get(&pid).and_then(|app| app.retention_ms).unwrap_or(self.retention_ms)
    }
}

const MIB: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 448 * MIB;
/// With less memory, the write buffers would hold only a batch or two.
const MEMORY_BYTES_MIN: u64 = 32 * MIB;
/// More is probably a wrong unit.
const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * MIB;

pub(crate) fn read(store: &mut Section<'_>) -> Store {
    let is_shared = store.text("kind", parse_kind).unwrap_or(false);
    let hbase = store.table("hbase", hbase::read);
    let retention_ms = store.text("retention", duration::parse_ms_or_off);
    let fanout_above = store.integer("fanout_above", 0..=1_000_000).filter(|rate| *rate > 0);
    Store {
        hbase: is_shared.then_some(hbase),
        path: store.path("path").unwrap_or("adtrail-data".into()),
        partitions: store.integer("partitions", 1..=65_535).unwrap_or(64),
        retention_ms: retention_ms.unwrap_or(Some(400 * DAY_MS)),
        region_bytes_max: store.integer("region_bytes_max", 1 << 16..=1 << 40).unwrap_or(1 << 30),
        fanout_above,
        apps: BTreeMap::new(),
        memory_bytes: store.text("memory", parse_memory).unwrap_or(MEMORY_BYTES),
    }
}

/// Reads `[apps.store]`, which overrides `[store]`.
pub(crate) fn read_app(app: &mut Section<'_>, partitions: u16) -> AppStore {
    let retention_ms = app.text("retention", duration::parse_ms_or_off);
    AppStore { retention_ms, fanout: read_fanout(app, partitions) }
}

fn read_fanout(app: &mut Section<'_>, partitions: u16) -> Option<u16> {
    let fanout: u16 = app.integer("fanout", 1..=32_768)?;
    if !fanout.is_power_of_two() {
        app.reject("fanout", "expected a power of two: 1, 2, 4, 8 …", fanout.to_string());
        return None;
    }
    if fanout > partitions {
        let problem = format!("expected at most store.partitions, which is {partitions}");
        app.reject("fanout", problem, fanout.to_string());
        return None;
    }
    Some(fanout)
}

fn parse_memory(text: &str) -> Result<u64, Problem> {
    match size::parse_bytes(text)? {
        ..MEMORY_BYTES_MIN => Err(r#"too little, expected at least "32MiB""#.into()),
        bytes @ ..=MEMORY_BYTES_MAX => Ok(bytes),
        _ => Err(r#"too much, expected at most "1024GiB""#.into()),
    }
}

/// Parses the kind of store; true means shared by several processes.
fn parse_kind(text: &str) -> Result<bool, Problem> {
    match text {
        "embedded" => Ok(false),
        "hbase" => Ok(true),
        _ => Err(r#"expected "embedded" or "hbase""#.into()),
    }
}
