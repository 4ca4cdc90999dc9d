//! Rows that tests write and read.

use hbase_client::{Error, Mutation, Put, Row, Rows, Scan, Table};

pub fn key(row: u32) -> String {
    format!("{row:08}")
}

/// Other bytes for each row, and of other length.
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
        outcome.expect("a row is written");
    }
}

/// All of them there are, in the order that they come in.
pub async fn read(table: &Table, scan: Scan) -> Result<Vec<Row>, Error> {
    gather(table.scan(scan)).await
}

pub async fn gather(mut rows: Rows) -> Result<Vec<Row>, Error> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next_batch().await {
        all.extend(batch?);
    }
    Ok(all)
}

/// That these rows came, each once, in order and byte for byte.
#[track_caller]
pub fn check_exact(found: &[Row], wanted: impl Iterator<Item = u32>) {
    let mut count = 0;
    for (row, wanted) in found.iter().zip(wanted) {
        assert_eq!(row.key(), key(wanted).as_bytes(), "the row after {count}");
        assert_eq!(row.value(b"d", b"v"), Some(&value(wanted)[..]), "the value of {wanted}");
        assert_eq!(row.cells()[0].timestamp(), 1_000 + u64::from(wanted));
        count += 1;
    }
    assert_eq!(found.len(), count, "rows that were not written");
}
