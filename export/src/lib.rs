//! HTTP out: any time range of an app as CSV, streamed from one snapshot of the store.
//!
//! A request is parsed into an [`ExportQuery`], [`write_rows`] writes the rows that it asks for,
//! and a download hands them on, a few chunks at a time. What the HTTP service answers, a file
//! on the command line gets too: both go through [`write_rows`]. [`write_differences`] writes what
//! two stores show differently of the same events.
//!
//! It decides nothing about attribution and writes nothing to the store. Who may see what is settled in
//! `access`, before any route is asked.
//!
//! Start with `routes`; what a request may say is in `query`, what a row looks like in `column`
//! and `csv`. The operators' listener is [`admin`].

mod access;
pub mod admin;
mod ahead;
mod answer;
mod appsflyer;
mod audit;
mod brought;
mod campaigns;
mod catalogue;
mod cell;
mod checksum;
mod column;
mod csv;
mod cursor;
mod differences;
mod download;
mod error;
mod excel;
mod expected;
pub mod explain;
mod exports;
mod filter;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod http;
mod metrics;
mod moment;
mod ndjson;
mod nearest;
mod openapi;
mod page;
mod parameter;
mod problem;
mod prop;
mod query;
mod routes;
mod rows;
mod same_zone;
mod serve;
mod step;
mod summary;
mod timeline;
mod turns;
mod value;
mod writer;
mod zone;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;

use tokio::net::TcpListener;

pub use crate::http::state::{CompleteUntil, ExportState};
pub use access::Access;
pub use checksum::Checksum;
pub use column::{Column, ContributorPart};
pub use csv::CsvWriter;
pub use differences::totals::{Counts, Totals, TotalsLine};
pub use differences::{Compared, ComparedApp, write_differences};
pub use error::ExportError;
pub use expected::expected_rows;
pub use metrics::{DURATION, DURATION_BUCKETS_SECONDS, Metrics};
pub use query::{Dialect, ExportQuery, Format, Preset};
pub use routes::router;
pub use rows::{Chunk, write_rows};
pub use same_zone::is_same_zone;
pub use zone::Zone;

/// Serves users until `shutdown`, then until the downloads that are under way have ended: how
/// long that may take is the caller's to say.
///
/// # Errors
/// What the listener says.
pub async fn serve(
    listener: TcpListener,
    state: ExportState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve::serve(listener, router(state), shutdown).await
}
