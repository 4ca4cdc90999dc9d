//! What tests of the embedded store share.

use std::collections::BTreeMap;

use attribution::facts::device_ids::IdKindSet;
use attribution::facts::event::{
    Device, EventTime, Pid, Purpose, SpreadId, TouchFields, TouchKind,
};
use attribution::facts::keys::MatchKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::FactWrite;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::Policy;
use tempfile::TempDir;

use super::Embedded;

/// A store that writes a commit when it is waited for.
pub fn deferring() -> (Embedded, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy::new(Vec::new(), Vec::new());
    let settings = config::Store {
        hbase: None,
        path: dir.path().join("store"),
        partitions: 8,
        retention_ms: None,
        memory_bytes: 64 << 20,
        region_bytes_max: 1 << 30,
        fanout_above: None,
        apps: BTreeMap::new(),
    };
    let mut store = Embedded::open(&settings, &policy).unwrap();
    store.defer_writes();
    (store, dir)
}

/// The write of a touch that is found under a key.
pub fn touch(id: &str, found_by: MatchKey) -> FactWrite {
    let fields = TouchFields {
        pid: Pid(1),
        id: id.into(),
        click_id: id.into(),
        kind: TouchKind::Click,
        purpose: Purpose::Ua,
        spreadid: SpreadId(7),
        time: EventTime::default(),
        lookback_ms: None,
        ids: Vec::new(),
        device: Device::default(),
        site: "".into(),
        params: Vec::new(),
    };
    FactWrite {
        key: fact_key(TouchKind::Click, Pid(1), id),
        record: FactRecord::Touch(fields.into()),
        index: [found_by].into_iter().collect(),
        received_md5: IdKindSet::default(),
        bucket_markers: Vec::new(),
        stale: Vec::new(),
        superseded: None,
    }
}
