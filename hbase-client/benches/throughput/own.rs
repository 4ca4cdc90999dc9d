//! Measures this crate.

use std::ops::Range;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_client::{Error, Mutation, Put, Scan, Selection, Table};
use tokio::task::JoinSet;

use super::support::hbase::HBase;
use super::{Cost, FAMILY, Measurement, QUALIFIER, VALUE_BYTES, Workload, cpu_s, key};

/// Rows per batch.
const BATCH_ROWS: u64 = 4_000;
/// Concurrent batches of a task: like a `BufferedMutator`, it builds the next ones while servers write these.
const BATCHES_IN_FLIGHT: usize = 3;
/// Rows per response, the same as for `PerformanceEvaluation`.
pub const ROWS_PER_RESPONSE: u32 = 1_000;

/// Measures with a new client.
pub async fn measure(hbase: &HBase, measurement: Measurement<'_>) -> Cost {
    let (started, (before, _)) = (Instant::now(), cpu_s());
    let client = hbase.client().await;
    let table = client.table(measurement.table).expect("the name is valid");
    let mut running = JoinSet::new();
    for task in 0..measurement.tasks {
        let part = |task| measurement.rows * task / measurement.tasks;
        let (table, part) = (table.clone(), part(task)..part(task + 1));
        match measurement.workload {
            Workload::Write => {
                running.spawn(write_random(table, part.end - part.start, measurement.rows))
            }
            Workload::Scan => running.spawn(scan(table, part)),
        };
    }
    while let Some(done) = running.join_next().await {
        done.expect("the task does not panic").expect("HBase responds");
    }
    Cost { seconds: started.elapsed().as_secs_f64(), cpu_s: cpu_s().0 - before }
}

async fn write_random(table: Table, count: u64, rows: u64) -> Result<(), Error> {
    let mut random = fastrand::Rng::new();
    write(&table, (0..count).map(|_| random.u64(..rows))).await
}

/// Writes rows in batches.
pub async fn write(table: &Table, mut rows: impl Iterator<Item = u64>) -> Result<(), Error> {
    let mut in_flight: JoinSet<Vec<Result<(), Error>>> = JoinSet::new();
    loop {
        let puts: Vec<Mutation> = rows.by_ref().take(BATCH_ROWS as usize).map(put).collect();
        if puts.is_empty() || in_flight.len() >= BATCHES_IN_FLIGHT {
            match in_flight.join_next().await {
                Some(written) => {
                    let outcomes = written.expect("the task does not panic");
                    outcomes.into_iter().collect::<Result<(), Error>>()?;
                }
                None => return Ok(()),
            }
        }
        if !puts.is_empty() {
            let table = table.clone();
            in_flight.spawn(async move { table.mutate_many(puts).await });
        }
    }
}

fn put(row: u64) -> Mutation {
    Put::new(key(row)).cell(FAMILY, QUALIFIER, value()).into()
}

/// Returns a random value, generated like those of `PerformanceEvaluation`: each random letter eight times.
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
    let mut rows = table.scan(scan.rows_per_response(ROWS_PER_RESPONSE));
    let (mut count, mut bytes) = (0, 0);
    while let Some(batch) = rows.next_batch().await {
        for row in batch? {
            count += 1;
            bytes += row.cells().iter().map(|cell| cell.value().len()).sum::<usize>();
        }
    }
    assert_eq!(count, part.end - part.start, "every row is read once");
    assert_eq!(bytes, count as usize * VALUE_BYTES, "bytes read");
    Ok(())
}
