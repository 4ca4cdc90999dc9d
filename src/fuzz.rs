//! Fuzz targets of all crates, run by `fuzz/`. See `docs/fuzzing.md`.

#[cfg(test)]
#[path = "../fuzz/stored_inputs.rs"]
mod stored_inputs;

use attribution::facts::event::Pid;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::{AppPolicy, Policy};
use ingest::decode;
use store::layout::codec::fact_record;

use crate::commands::download::fuzz::any as resume;

/// A name, and a function that must accept any bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[("resume", resume), ("stored", stored)];

/// Returns the targets of all crates.
#[cfg(feature = "fuzzing")]
pub fn targets() -> impl Iterator<Item = Target> {
    let all =
        [config::fuzz::TARGETS, ingest::fuzz::TARGETS, store::fuzz::TARGETS, export::fuzz::TARGETS];
    all.into_iter().flatten().chain(TARGETS).copied()
}

/// Checks that a decoded event is unchanged after it is encoded for the store and decoded.
fn stored(input: &[u8]) {
    let policy = Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![]);
    let Ok(fact) = decode::decode(input, None, &policy) else { return };
    let (family, pid) = (fact.id_space().family(), fact.pid());
    let record = FactRecord::from(fact);
    let mut bytes = Vec::new();
    fact_record::encode(&record, &mut bytes);
    assert_eq!(fact_record::decode(family, pid, &bytes).ok(), Some(record));
}
