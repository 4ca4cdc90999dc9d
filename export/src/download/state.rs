//! What became of a download.

use serde::Serialize;

attribution::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum State {
        Running = "running",
        Complete = "complete",
        /// The client went away.
        Aborted = "aborted",
        /// The rows could not be read to their end; the log says why.
        Failed = "failed",
    }
}
