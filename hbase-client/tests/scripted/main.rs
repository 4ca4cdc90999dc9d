//! Tests on in-memory servers that reply as a test scripts: in any order, late, in part, or never.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test support fails loudly, as clippy.toml allows in tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod bootstrap;
mod chaos;
mod checks;
mod errors;
mod every_call;
mod limits;
mod locating;
mod masters;
mod scans;

use bytes::Bytes;
use hbase_client::{Error, Row, Rows, Scan, Table};
use support::fake::{Call, Model, Servers};

/// Returns whether a call is a scan of the table, not of `hbase:meta`.
fn is_scan(call: &Call) -> bool {
    call.method == "Scan" && !is_meta_scan(call)
}

fn is_meta_scan(call: &Call) -> bool {
    call.method == "Scan" && call.param.windows(10).any(|part| part == b"hbase:meta")
}

fn is_multi(call: &Call) -> bool {
    call.method == "Multi"
}

/// Checks that these are all rows of the model, in order.
#[track_caller]
fn check_all(found: &[Row], model: &Model) {
    assert_eq!(found.len(), model.rows.len(), "rows");
    for (row, (key, cells)) in found.iter().zip(&model.rows) {
        assert_eq!(row.key(), &key[..]);
        let read: Vec<_> =
            row.cells().iter().map(|cell| (cell.qualifier(), cell.value())).collect();
        let expected: Vec<_> =
            cells.iter().map(|(q, v): (&Bytes, &Bytes)| (&q[..], &v[..])).collect();
        assert_eq!(read, expected, "row {}", key.escape_ascii());
    }
}

/// Checks that a scan returns all rows of the model.
async fn check_scan(servers: &Servers, table: &Table) {
    let found = read_all(table).await.unwrap();
    servers.model(|model| check_all(&found, model));
}

/// Reads until a scan fails. Returns the number of rows before the error.
async fn rows_before_error(rows: &mut Rows) -> (usize, Error) {
    let mut count = 0;
    loop {
        match rows.next().await.expect("the scan ends with an error") {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

async fn read_all(table: &Table) -> Result<Vec<Row>, Error> {
    support::rows::read(table, Scan::all()).await
}
