//! What every ledger does, one suite for all of them; and what a store on disk does besides.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod directory;
mod engine;
mod facts;
mod model;
mod reading;
mod regions;
mod rows;
mod space;
mod timeline;
mod told;
mod torn;

use adtrail_store::StoreError;
use attribution::classify::Walks;
use attribution::event::{EventTime, Fact, Family, Pid};
use attribution::ledger::{
    ActivationHome, Causes, EffectHome, FactKey, FactWrite, Home, IndexEntry, Ledger, Progress,
    Scan,
};
use attribution::matching::{MatchKey, fact_key};
use support::facts::{Draft, millis};
use support::rules::X;

/// A ledger that a test of the suite runs on.
trait Kept: Ledger<Error = StoreError> {}

impl<L: Ledger<Error = StoreError>> Kept for L {}

/// Makes a test of each function, for each ledger.
macro_rules! suite {
    ($($test:ident)*) => {
        mod in_memory {
            $(#[test]
            fn $test() {
                super::$test(&mut adtrail_store::memory::Memory::default());
            })*
        }

        mod on_disk {
            $(#[test]
            fn $test() {
                let (mut store, _dir) = crate::support::run::on_disk(&crate::support::rules::rules());
                super::$test(&mut store);
            })*
        }
    };
}
pub(crate) use suite;

/// A fact to record, found under the keys.
fn write(fact: impl Into<Fact>, keys: &[u64]) -> FactWrite {
    let fact = fact.into();
    FactWrite {
        key: fact_key(fact.family(), fact.pid(), fact.id()),
        home: home(fact),
        index: keys.iter().copied().map(MatchKey).collect(),
        marks: Vec::new(),
        stale: Vec::new(),
        outgoing: None,
    }
}

fn home(fact: Fact) -> Home {
    match fact {
        Fact::Touch(touch) => Home::Touch(touch),
        Fact::Activation(fact) => Home::Activation(Box::new(ActivationHome {
            fact: *fact,
            walks: Walks::default(),
            decision: None,
            previous: None,
            changed_by: Causes::default(),
            present: None,
        })),
        Fact::Effect(fact) => Home::Effect(Box::new(EffectHome { fact: *fact, present: None })),
    }
}

/// A touch at a time, found under the keys.
fn touch(id: &str, ms: i64, keys: &[u64]) -> FactWrite {
    write(support::facts::click(id, millis(ms)), keys)
}

/// A scan of the touches of app X under a key, from the newest to the oldest time.
fn scan(key: u64, newest: i64, oldest: i64) -> Scan {
    Scan {
        family: Family::Touch,
        key: MatchKey(key),
        pid: X,
        oldest: millis(oldest),
        newest: millis(newest),
        after: None,
        limit: 1_000,
    }
}

fn record(ledger: &mut impl Kept, writes: impl IntoIterator<Item = FactWrite>) {
    let lost = ledger.record(writes.into_iter().collect()).expect("facts are recorded");
    assert!(lost.is_empty(), "nobody else writes");
}

fn commit(ledger: &mut impl Kept) {
    let lost = ledger.commit(Vec::new(), &Progress::default()).expect("facts are committed");
    assert!(lost.is_empty(), "nobody else writes");
}

fn entries(ledger: &mut impl Kept, scan: Scan) -> Vec<IndexEntry> {
    ledger.scan(&[scan]).expect("a scan").remove(0)
}

/// The times of a scan's entries.
fn times(ledger: &mut impl Kept, scan: Scan) -> Vec<u64> {
    entries(ledger, scan).iter().map(|entry| entry.time.millis()).collect()
}

fn home_of(ledger: &mut impl Kept, key: FactKey) -> Option<Home> {
    ledger.homes(&[key]).expect("a look-up").remove(0)
}

fn entry(of: &FactWrite) -> IndexEntry {
    IndexEntry { time: of.home.time(), fact: of.key }
}

fn end_of_time() -> i64 {
    EventTime::MAX.millis() as i64
}

/// The same write of another app.
fn of_app(pid: Pid, draft: Draft, keys: &[u64]) -> FactWrite {
    let draft = if pid == X { draft } else { draft.of_app_y() };
    write(draft, keys)
}
