//! Waits for a shutdown request in a runtime.

use std::time::Duration;

use ingest::Shutdown;

/// Interval of the checks for a shutdown request or an ended thread.
pub const SUPERVISION_INTERVAL: Duration = Duration::from_millis(50);

pub async fn until_shutdown(shutdown: Shutdown) {
    while !shutdown.is_requested() {
        tokio::time::sleep(SUPERVISION_INTERVAL).await;
    }
}
