//! HTTP out: any time range of an app as CSV or NDJSON, streamed from one snapshot of the store.
//!
//! A request is parsed into an [`ExportQuery`], [`write_rows`] writes the rows it selects, and a download hands them to
//! the client a few chunks at a time. Files on the command line go through [`write_rows`] too. [`write_differences`]
//! compares the rows of two stores.
//!
//! This crate makes no attribution decision and writes nothing to the store. Requests are authenticated in
//! `http::gate` before any route runs.
//!
//! Start with `http::router`. `query` parses requests, `format` writes rows, `download` streams them, `page` is the
//! HTML interface, and [`http::admin`] serves operators.

mod appsflyer;
mod differences;
mod echo;
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
mod tracking_links;

mod api;
mod download;
#[cfg(test)]
mod tests;

use std::future::Future;

use config::ExportClients;
use listener::{Clients, Refused};
use tokio::net::TcpListener;

pub use crate::http::state::{CompleteUntil, ExportState};
pub use api::summary::expected_rows;
pub use differences::totals::{Counts, Totals, TotalsLine};
pub use differences::{Compared, ComparedApp, write_differences};
pub use download::checksum::Checksum;
pub use echo::Echo;
pub use error::ExportError;
pub use format::chunks::Chunk;
pub use format::time::zone::Zone;
pub use format::write_rows::write_rows;
pub use http::access::Access;
pub use http::routes::ExportRoutes;
pub use http::server::CONNECTIONS_MAX;
use http::server::LIMITS;
pub use metrics::{DURATION, DURATION_BUCKETS_SECONDS};
pub use query::{Dialect, ExportQuery, Format, Preset};
pub use tracking_links::{PersonLink, ReportLink, ReportUrl, TrackingLinks};

/// Serves users until `shutdown`, then until the downloads in progress have ended. The caller limits how long that
/// may take.
pub async fn serve(
    listener: TcpListener,
    state: ExportState,
    clients: ExportClients,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let routes = ExportRoutes::new(state, &listener, &clients.allowed_hosts);
    serve_routes(listener, routes, clients.connections_per_client_max, shutdown).await;
}

/// Like [`serve`], with settings that can be replaced.
pub async fn serve_routes(
    listener: TcpListener,
    routes: ExportRoutes,
    connections_per_client_max: usize,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let metrics = routes.metrics();
    let clients = Clients::new(connections_per_client_max, move |refused| {
        if refused == Refused::Connection {
            metrics.refused("connections");
        }
    });
    listener::serve(listener, routes.routers(), clients, LIMITS, shutdown).await;
}
