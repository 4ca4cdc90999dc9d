//! By this crate.

use std::ops::Range;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_client::{Error, Mutation, Put, Scan, Selection, Table};
use tokio::task::JoinSet;

use super::support::hbase::HBase;
use super::{FAMILY, QUALIFIER, Taken, Turn, VALUE_BYTES, What, cpu_s, key};

/// Handed over together.
const BATCH_ROWS: u64 = 4_000;
/// Of each task: the next ones are made while servers write these, as a BufferedMutator does.
const BATCHES_UNDER_WAY: usize = 3;
/// As `PerformanceEvaluation` is told.
pub const ROWS_PER_ANSWER: u32 = 1_000;

/// With a client of its own.
pub async fn run(hbase: &HBase, turn: Turn<'_>) -> Taken {
    let (begun, (before, _)) = (Instant::now(), cpu_s());
    let client = hbase.client().await;
    let table = client.table(turn.table).expect("a name");
    let mut running = JoinSet::new();
    for task in 0..turn.tasks {
        let part = |task| turn.rows * task / turn.tasks;
        let (table, part) = (table.clone(), part(task)..part(task + 1));
        match turn.what {
            What::Write => running.spawn(write_any(table, part.end - part.start, turn.rows)),
            What::Scan => running.spawn(scan(table, part)),
        };
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic").expect("hbase answers");
    }
    Taken { seconds: begun.elapsed().as_secs_f64(), cpu_s: cpu_s().0 - before }
}

/// Every row once.
pub async fn fill(table: &Table, rows: u64) {
    write(table, 0..rows).await.expect("hbase answers");
}

async fn write_any(table: Table, count: u64, rows: u64) -> Result<(), Error> {
    let mut random = fastrand::Rng::new();
    write(&table, (0..count).map(|_| random.u64(..rows))).await
}

async fn write(table: &Table, mut rows: impl Iterator<Item = u64>) -> Result<(), Error> {
    let mut under_way = JoinSet::new();
    loop {
        let puts: Vec<Mutation> = rows.by_ref().take(BATCH_ROWS as usize).map(put).collect();
        if puts.is_empty() || under_way.len() >= BATCHES_UNDER_WAY {
            match under_way.join_next().await {
                Some(written) => check(written.expect("no panic"))?,
                None => return Ok(()),
            }
        }
        if !puts.is_empty() {
            let table = table.clone();
            under_way.spawn(async move { table.mutate_many(puts).await });
        }
    }
}

fn put(row: u64) -> Mutation {
    Put::new(key(row)).cell(FAMILY, QUALIFIER, value()).into()
}

fn check(outcomes: Vec<Result<(), Error>>) -> Result<(), Error> {
    outcomes.into_iter().collect()
}

/// Made anew for each row, as `PerformanceEvaluation` makes them: eight times a letter, and another.
fn value() -> Bytes {
    let mut value = BytesMut::with_capacity(VALUE_BYTES);
    while value.len() < VALUE_BYTES {
        value.put_bytes(fastrand::u8(b'A'..=b'Z'), 8);
    }
    value.freeze()
}

async fn scan(table: Table, part: Range<u64>) -> Result<(), Error> {
    let selection = Selection::all().column(FAMILY, QUALIFIER);
    let scan = Scan::range(key(part.start), key(part.end)).select(selection);
    let mut rows = table.scan(scan.rows_per_answer(ROWS_PER_ANSWER));
    let (mut count, mut bytes) = (0, 0);
    while let Some(batch) = rows.next_batch().await {
        for row in batch? {
            count += 1;
            bytes += row.cells().iter().map(|cell| cell.value().len()).sum::<usize>();
        }
    }
    assert_eq!(count, part.end - part.start, "every row is read once");
    assert_eq!(bytes, count as usize * VALUE_BYTES, "what was written is read");
    Ok(())
}
