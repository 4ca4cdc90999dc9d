//! HTTP in: reports of ad networks and events of apps, produced to Kafka.
//!
//! A network's report is read by the [`dialect`](Dialects) of its channel into the JSON of a touch. Every event is
//! checked with the decoder of `ingest`, so that what is produced is accepted later, and is answered with success only
//! once Kafka has acknowledged it, or once it is in the spool on disk, if one is configured. Otherwise a request is
//! answered with 503, and its sender repeats it.
//!
//! This crate makes no attribution decision and knows no store.
//!
//! Start with `http::router`. `dialect` has the parameters of each network, in `collect/dialects/`; `event` passes
//! events to Kafka or to the `spool`, and counts and shows what each became.

mod dialect;
mod echo;
mod error;
mod event;
mod http;
mod limits;
mod metrics;
mod notes;
mod recent;
mod refusal;
mod signature;
mod spool;
mod state;
#[cfg(test)]
mod test_bed;

use std::future::Future;
use std::time::Duration;

use listener::{Clients, Limits, Refused};
use tokio::net::TcpListener;

pub use dialect::catalogue::Dialects;
pub use dialect::link::{Link, LinkKind, LinkTarget, PersonLink, person_link};
pub use echo::Echo;
pub use error::CollectError;
pub use signature::check_keys;
pub use state::Collector;

/// Connections of the listener; further clients wait to be accepted.
pub const CONNECTIONS_MAX: usize = 1_024;

/// Request line and headers. Networks send URLs of at most 10 KiB.
const HEAD_BYTES_MAX: usize = 24 << 10;

const LIMITS: Limits = Limits { connections_max: CONNECTIONS_MAX, head_bytes_max: HEAD_BYTES_MAX };

/// How often to check whether the Kafka client has failed for good.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until `shutdown`, then until all requests received by then are answered.
///
/// # Errors
/// If the Kafka client has failed for good; no request would succeed any more.
pub async fn serve(
    listener: TcpListener,
    collector: Collector,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), CollectError> {
    let refusing = collector.clone();
    let connections_max = collector.settings().connections_per_client_max;
    let clients = Clients::new(connections_max, move |refused| {
        refusing.metrics().refused_request(match refused {
            Refused::Connection => "connections",
            Refused::Head => "headers",
            Refused::Syntax => "syntax",
        });
    });
    let router = http::router::router(collector.clone());
    let outcome = tokio::select! {
        () = listener::serve(listener, router, clients, LIMITS, shutdown) => Ok(()),
        error = failed(&collector) => Err(error),
    };
    collector.flush().await;
    outcome
}

/// Completes once the Kafka client has failed for good.
async fn failed(collector: &Collector) -> CollectError {
    loop {
        tokio::time::sleep(CLIENT_CHECK_INTERVAL).await;
        if let Some(reason) = collector.fatal_error() {
            return CollectError::Fatal(reason);
        }
    }
}
