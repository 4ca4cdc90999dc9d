//! The states of a download.

use serde::Serialize;

attribution::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum State {
        Running = "running",
        Complete = "complete",
        /// The client disconnected or stopped reading, or the service stopped.
        Aborted = "aborted",
        /// The rows could not be read to the end; the log has the reason.
        Failed = "failed",
    }
}
