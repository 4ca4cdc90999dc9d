//! Fuzz targets of all crates, for `fuzz/`: see `docs/fuzzing.md`.

#[cfg(test)]
#[path = "../fuzz/kept.rs"]
mod kept;

use attribution::facts::event::Pid;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::{AppPolicy, Policy};
use ingest::decode;
use store::layout::codec::fact_record;

use crate::commands::download::fuzz::any as resume;

/// A name, and a function of any bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[("resume", resume), ("stored", stored)];

/// The targets of all crates.
#[cfg(feature = "fuzzing")]
pub fn targets() -> impl Iterator<Item = Target> {
    let all =
        [config::fuzz::TARGETS, ingest::fuzz::TARGETS, store::fuzz::TARGETS, export::fuzz::TARGETS];
    all.into_iter().flatten().chain(TARGETS).copied()
}

/// An event as producers send it is the same when it is read back from the store.
fn stored(input: &[u8]) {
    let policy = Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![]);
    let Ok(fact) = decode::decode(input, None, &policy) else { return };
    let (family, pid) = (fact.family(), fact.pid());
    let kept = FactRecord::from(fact);
    let mut written = Vec::new();
    fact_record::encode(&kept, &mut written);
    assert_eq!(fact_record::decode(family, pid, &written).ok(), Some(kept));
}
