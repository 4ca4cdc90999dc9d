//! How fast rows are written and read, and what that costs the client: beside what
//! `examples/throughput/Throughput.java` tells of HBase's own client.
//!
//! ```text
//! cargo run --release --example throughput -- HOST:PORT write|scan ROWS TASKS [ROWS_PER_CALL]
//! ```

use std::error::Error;
use std::fs;
use std::time::Instant;

use hbase_client::{Client, Config, Family, Mutation, Put, Scan, Selection, Table, TableSpec};

const TABLE: &str = "throughput";
const REGIONS: u64 = 8;
const VALUE_BYTES: usize = 200;
/// Handed over together.
const BATCH_ROWS: u64 = 4_000;
/// Of each task.
const BATCHES_UNDER_WAY: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, what, rows, tasks, rest @ ..] = &arguments[..] else {
        return Err("usage: throughput HOST:PORT write|scan ROWS TASKS [ROWS_PER_CALL]".into());
    };
    let (rows, tasks): (u64, u64) = (rows.parse()?, tasks.parse()?);
    let mut config = Config::new([server])?;
    let per_call = rest.first().map(|text| text.parse()).transpose()?;
    config.call_actions_max = per_call.unwrap_or(1_000);
    let client = Client::connect(config).await?;
    let table = prepare(&client).await?;
    let (begun, cpu_before) = (Instant::now(), cpu_s()?);
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (table, part) = (table.clone(), rows * task / tasks..rows * (task + 1) / tasks);
        match what.as_str() {
            "write" => running.spawn(write(table, part)),
            "scan" => running.spawn(scan(table, part, per_call.unwrap_or(10_000) as u32)),
            _ => return Err("write or scan".into()),
        };
    }
    let mut done = 0;
    while let Some(part) = running.join_next().await {
        done += part?.map_err(|error| error.to_string())?;
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_s()? - cpu_before);
    let millions = done as f64 / 1e6;
    println!(
        "{what} {done} rows, {tasks} tasks: {:.0} rows/s, {:.2} CPU-s per million rows, {} MB",
        done as f64 / seconds,
        cpu / millions,
        memory_mb()?
    );
    Ok(())
}

async fn prepare(client: &Client) -> Result<Table, hbase_client::Error> {
    let admin = client.admin();
    let tables = admin.list().await?;
    if !tables.iter().any(|name| name.to_string() == TABLE) {
        let splits: Vec<_> =
            (1..REGIONS).map(|part| key(part * (u64::MAX / REGIONS)).into()).collect();
        admin.create(&TableSpec::new(TABLE).family(Family::new("d")), &splits).await?;
    }
    client.table(TABLE)
}

/// Over all of the keys, as a hash would be.
fn spread(row: u64, rows: u64) -> u64 {
    row * (u64::MAX / rows)
}

fn key(row: u64) -> Vec<u8> {
    format!("{row:020}").into_bytes()
}

async fn write(table: Table, part: std::ops::Range<u64>) -> Result<u64, hbase_client::Error> {
    const ROWS: u64 = 1_000_000;
    let value = bytes::Bytes::from(vec![b'x'; VALUE_BYTES]);
    let rows = part.end - part.start;
    let mut under_way = tokio::task::JoinSet::new();
    let mut begin = part.start;
    while begin < part.end {
        let end = part.end.min(begin + BATCH_ROWS);
        // Neighbours go to all regions, as events of many apps do.
        let put = |row: u64| Put::new(key(spread(row.wrapping_mul(7_919) % ROWS, ROWS)));
        let puts = (begin..end).map(|row| Mutation::from(put(row).cell("d", "q", value.clone())));
        let (table, puts) = (table.clone(), puts.collect());
        under_way.spawn(async move { table.mutate_many(puts).await });
        // The next one is made while servers write this one, as a BufferedMutator does.
        if under_way.len() >= BATCHES_UNDER_WAY {
            check(under_way.join_next().await)?;
        }
        begin = end;
    }
    while let Some(written) = under_way.join_next().await {
        check(Some(written))?;
    }
    Ok(rows)
}

type Written = Result<Vec<Result<(), hbase_client::Error>>, tokio::task::JoinError>;

fn check(written: Option<Written>) -> Result<(), hbase_client::Error> {
    let outcomes = written.transpose().map_err(|_| hbase_client::Error::Closed)?;
    outcomes.unwrap_or_default().into_iter().collect()
}

async fn scan(
    table: Table,
    part: std::ops::Range<u64>,
    per_call: u32,
) -> Result<u64, hbase_client::Error> {
    const ROWS: u64 = 1_000_000;
    let (start, stop) = (key(spread(part.start, ROWS)), key(spread(part.end, ROWS)));
    let selection = Selection::all().family("d");
    let mut rows = table.scan(Scan::range(start, stop).select(selection).rows_per_answer(per_call));
    let (mut count, mut bytes) = (0, 0);
    while let Some(batch) = rows.next_batch().await {
        for row in batch? {
            count += 1;
            bytes += row.cells().iter().map(|cell| cell.value().len()).sum::<usize>();
        }
    }
    assert_eq!(bytes, count as usize * VALUE_BYTES, "what was written is read");
    Ok(count)
}

/// Of this process, in user and system mode.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    /// Of the numbers in `/proc`.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<f64> = after_name.split(' ').filter_map(|field| field.parse().ok()).collect();
    // Without the state, which is no number: user and system time are the 11th and 12th.
    Ok((fields[10] + fields[11]) / TICKS_PER_S)
}

/// The most that it ever had.
fn memory_mb() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kb: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb >> 10)
}
