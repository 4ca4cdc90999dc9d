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

mod appsflyer;
mod differences;
mod error;
pub mod explain;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod http;
mod metrics;
mod openapi;
mod page;
mod query;

mod api;
mod download;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;

use tokio::net::TcpListener;

pub use crate::http::state::{CompleteUntil, ExportState};
pub use differences::totals::{Counts, Totals, TotalsLine};
pub use differences::{Compared, ComparedApp, write_differences};
pub use download::checksum::Checksum;
pub use error::ExportError;
pub use format::column::{Column, ContributorPart};
pub use format::csv::CsvWriter;
pub use format::time_zone::Zone;
pub use format::write_rows::{Chunk, write_rows};
pub use format::zone_equality::is_same_zone;
pub use http::access::Access;
pub use http::router::router;
use http::server;
pub use metrics::{DURATION, DURATION_BUCKETS_SECONDS, Metrics};
pub use query::estimate::expected_rows;
pub use query::{Dialect, ExportQuery, Format, Preset};

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
    server::serve(listener, router(state), shutdown).await
}
