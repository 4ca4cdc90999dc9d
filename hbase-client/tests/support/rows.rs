//! Rows that tests write and read.

use hbase_client::{Error, Mutation, Put, Row, Rows, Scan, Table};

pub fn key(row: u32) -> String {
    format!("{row:08}")
}

/// Returns the value of a row. Bytes and length differ by row.
pub fn value(row: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(row));
    let length = random.usize(50..150);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

pub fn put(row: u32) -> Mutation {
    Put::new(key(row)).cell_at(1_000 + u64::from(row), "d", "v", value(row)).into()
}

pub async fn write(table: &Table, rows: impl Iterator<Item = u32>) {
    for outcome in table.mutate_many(rows.map(put).collect()).await {
        outcome.expect("the row is written");
    }
}

/// Returns all rows of a scan, in the order in which they arrive.
pub async fn read(table: &Table, scan: Scan) -> Result<Vec<Row>, Error> {
    collect(table.scan(scan)).await
}

pub async fn collect(mut rows: Rows) -> Result<Vec<Row>, Error> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next_batch().await {
        all.extend(batch?);
    }
    Ok(all)
}

/// Checks that exactly these rows were read, in order and byte for byte.
#[track_caller]
pub fn check_exact(found: &[Row], expected: impl Iterator<Item = u32>) {
    let mut count = 0;
    for (row, expected) in found.iter().zip(expected) {
        assert_eq!(row.key(), key(expected).as_bytes(), "the row after {count}");
        assert_eq!(row.value(b"d", b"v"), Some(&value(expected)[..]), "the value of {expected}");
        assert_eq!(row.cells()[0].timestamp(), 1_000 + u64::from(expected));
        count += 1;
    }
    assert_eq!(found.len(), count, "more rows than expected");
}
