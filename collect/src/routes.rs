//! The routes of a collector whose settings can be replaced while it serves.

use std::sync::Arc;

use axum::Router;
use config::Config;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::http::router::router;
use crate::{CollectError, Collector};

/// A collector with the settings that it has at present; cheap to clone. Each request is answered by one version of the
/// settings.
#[derive(Clone)]
pub struct CollectRoutes(Arc<Shared>);

struct Shared {
    collector: Mutex<Collector>,
    routers: watch::Sender<Router>,
}

impl CollectRoutes {
    pub fn new(collector: Collector) -> Self {
        let (routers, _) = watch::channel(router(collector.clone()));
        Self(Arc::new(Shared { collector: Mutex::new(collector), routers }))
    }

    /// Returns the collector of the present settings.
    pub fn collector(&self) -> Collector {
        self.0.collector.lock().clone()
    }

    /// Returns the collector of other settings, for [`CollectRoutes::replace`].
    ///
    /// # Errors
    /// See [`Collector::with_settings`].
    pub fn prepare(&self, config: &Config) -> Result<Collector, CollectError> {
        self.collector().with_settings(config)
    }

    /// Answers further requests by the settings of this collector, which [`CollectRoutes::prepare`] has returned.
    pub fn replace(&self, collector: Collector) {
        let router = router(collector.clone());
        *self.0.collector.lock() = collector;
        let _ = self.0.routers.send_replace(router);
    }

    pub(crate) fn routers(&self) -> watch::Receiver<Router> {
        self.0.routers.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::test_bed::{Bed, Server};

    #[tokio::test]
    async fn the_last_requests_of_a_link_outlive_a_change_of_settings() {
        let bed = Bed::new("");
        let server = Server::start(&bed.collector).await;
        let mut client = server.connect("127.0.0.1").await;
        let request = "GET /go/l HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        client.read_to_end(&mut Vec::new()).await.unwrap();
        server.stop().await;
        let changed = bed.collector.with_settings(bed.collector.config()).unwrap();
        let kept = changed.recent_clicks("l").unwrap();
        assert_eq!(kept["requests"].as_array().map(Vec::len), Some(1), "{kept}");
    }
}
