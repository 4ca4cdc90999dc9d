//! A batch may be divided among any number of threads: what it stores and reports is the same.

use std::sync::{Arc, Mutex, PoisonError};

use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::record::FactRecord;
use attribution::parallelism::Parallelism;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, BatchReport, Worker};
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::cells::{HookedClient, Model, ledger};
use support::random::{self, Facts, Rules};
use support::row_text::{RowText, row_texts};
use support::run::{LedgerUnderTest, assert_same_rows, on_disk, process};

use crate::support;

/// Numbers of threads; each of them gets an item if there are enough.
pub const THREADS: [usize; 4] = [1, 2, 4, 8];

pub fn divided_among(threads: usize) -> Parallelism {
    Parallelism::with_chunk_min(threads, 1)
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Everything that a worker has stored and reported.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    reports: Vec<BatchReport>,
    /// With decisions, install chains and the causes of changes.
    records: Vec<Option<FactRecord>>,
    rows: Vec<RowText>,
}

fn outcome<L: LedgerUnderTest>(mut worker: Worker<L>, batches: &[Vec<Fact>]) -> Outcome {
    let reports = batches.iter().map(|facts| process(&mut worker, facts.clone())).collect();
    let key = |fact: &Fact| fact_key(fact.id_space(), fact.pid(), fact.id());
    let mut keys: Vec<FactKey> = batches.iter().flatten().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let records = worker.ledger_mut().records(&keys).expect("the ledger works");
    Outcome { reports, records, rows: worker.ledger().row_texts() }
}

/// Returns the rows of a shared store.
fn shared_rows(policy: &Arc<Policy>, batches: &[Vec<Fact>], threads: usize) -> Vec<RowText> {
    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let worker = Worker::new(ledger(client), Arc::clone(policy));
    let mut worker = worker.with_parallelism(divided_among(threads));
    for facts in batches.iter().cloned() {
        worker.process(Batch { facts, ..Batch::default() }).expect("memory works");
    }
    drop(worker);
    let model = model.lock().unwrap_or_else(PoisonError::into_inner);
    row_texts(&model.rows())
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn any_number_of_threads_decides_the_same_in_memory(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let batches: Vec<_> = facts.rchunks(15).map(<[Fact]>::to_vec).collect();
        let outcomes = THREADS.map(|threads| {
            let worker = Worker::new(Memory::default(), Arc::clone(&policy));
            outcome(worker.with_parallelism(divided_among(threads)), &batches)
        });
        for (threads, found) in THREADS.into_iter().zip(&outcomes) {
            assert_eq!(found, &outcomes[0], "{threads} threads");
        }
    }

    #[test]
    fn any_number_of_threads_writes_the_same_rows_to_a_shared_store(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let batches: Vec<_> = facts.rchunks(15).map(<[Fact]>::to_vec).collect();
        let expected = shared_rows(&policy, &batches, 1);
        for threads in THREADS {
            let found = shared_rows(&policy, &batches, threads);
            assert_same_rows(&found, &expected, &format!("{threads} threads"));
        }
    }
}

proptest! {
    #![proptest_config(config(3))]

    /// Hundreds of touches, each delivered twice.
    #[test]
    fn any_number_of_threads_stores_the_same_on_disk(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::floods(),
    ) {
        let batches = facts.chunks(100).chain(facts.rchunks(200)).map(<[Fact]>::to_vec);
        let batches: Vec<_> = batches.collect();
        let outcomes = THREADS.map(|threads| {
            let (mut store, _dir) = on_disk(&policy);
            store.set_parallelism(divided_among(threads));
            let worker = Worker::new(store, Arc::clone(&policy));
            outcome(worker.with_parallelism(divided_among(threads)), &batches)
        });
        for (threads, found) in THREADS.into_iter().zip(&outcomes) {
            assert_eq!(found, &outcomes[0], "{threads} threads");
        }
    }
}
