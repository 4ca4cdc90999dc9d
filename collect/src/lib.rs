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
mod routes;
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
pub use routes::CollectRoutes;
pub use signature::check_keys;
pub use state::{Collector, REPORTED_CHANNEL};

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
    routes: CollectRoutes,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), CollectError> {
    // What is used of it here is the same under all settings.
    let collector = routes.collector();
    let refusing = collector.clone();
    let connections_max = collector.settings().connections_per_client_max;
    let clients = Clients::new(connections_max, move |refused| {
        refusing.metrics().refused_request(match refused {
            Refused::Connection => "connections",
            Refused::Head => "headers",
            Refused::Syntax => "syntax",
        });
    });
    let outcome = tokio::select! {
        () = listener::serve(listener, routes.routers(), clients, LIMITS, shutdown) => Ok(()),
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

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::test_bed::{Bed, Server};

    #[tokio::test]
    async fn requests_that_no_handler_sees_are_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recording = ::metrics::set_default_local_recorder(&recorder);
        let bed = Bed::new("connections_per_client_max = 1");
        let server = Server::start(&bed.collector).await;
        // hyper checks the size before it reads more, so a head may be somewhat larger.
        let large = "y".repeat(4 * HEAD_BYTES_MAX);
        let large = format!("GET / HTTP/1.1\r\nX: {large}\r\n\r\n");
        let requests =
            [("127.0.0.1", "GET / HTTP/1.1\r\nno header\r\n\r\n"), ("127.0.0.2", &*large)];
        for (address, request) in requests {
            let mut client = server.connect(address).await;
            // The server need not read a request to its end.
            let _ = client.write_all(request.as_bytes()).await;
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
        let _first = server.connect("127.0.0.3").await;
        let mut second = server.connect("127.0.0.3").await;
        let _ = second.read_to_end(&mut Vec::new()).await;
        server.stop().await;
        let scrape = recorder.handle().render();
        for reason in ["syntax", "headers", "connections"] {
            let line = format!("adtrail_collect_refused_requests_total{{reason=\"{reason}\"}} 1");
            assert!(scrape.lines().any(|found| found == line), "{line} is not in\n{scrape}");
        }
    }

    /// A stop is as good as a client that takes too long, and needs no waiting.
    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_answered_with_408() {
        const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
        let bed = Bed::new("");
        let server = Server::start(&bed.collector).await;
        let mut client = server.connect("127.0.0.1").await;
        let head = "POST /click/app-x/c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        // It is sent once the handler waits for the body.
        let mut received = [0; CONTINUE.len()];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received, CONTINUE.as_bytes());
        server.stop().await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("/problems/request-timeout"), "{answer}");
    }
}
