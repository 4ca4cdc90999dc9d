//! On servers in memory that say what a test wants, in any order, late, in part, or never.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what clippy.toml lets tests do, what they call does too"
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
use hbase_client::{Error, Row, Scan, Table};
use support::fake::{Heard, Model};

/// Of the table's regions, not of `hbase:meta`.
fn is_scan(heard: &Heard) -> bool {
    heard.method == "Scan" && !is_of_meta(heard)
}

fn is_of_meta(heard: &Heard) -> bool {
    heard.method == "Scan" && heard.param.windows(10).any(|part| part == b"hbase:meta")
}

fn is_multi(heard: &Heard) -> bool {
    heard.method == "Multi"
}

/// That these rows are all that the model has, as it has them, in order.
#[track_caller]
fn check_all(found: &[Row], model: &Model) {
    assert_eq!(found.len(), model.rows.len(), "rows");
    for (row, (key, cells)) in found.iter().zip(&model.rows) {
        assert_eq!(row.key(), &key[..]);
        let read: Vec<_> =
            row.cells().iter().map(|cell| (cell.qualifier(), cell.value())).collect();
        let wanted: Vec<_> =
            cells.iter().map(|(q, v): (&Bytes, &Bytes)| (&q[..], &v[..])).collect();
        assert_eq!(read, wanted, "row {}", key.escape_ascii());
    }
}

async fn read_all(table: &Table) -> Result<Vec<Row>, Error> {
    support::rows::read(table, Scan::all()).await
}
