//! The thread on which a lane works with the outbox.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;

use crate::error::CallbackError;

/// Runs all work of a lane with the outbox on one thread. On the pool of the runtime, it would move from thread to thread,
/// and the allocator would keep free memory for each of them.
pub(super) struct OutboxThread {
    handle: Handle,
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl OutboxThread {
    /// # Errors
    /// If the runtime of the thread cannot be built.
    pub fn new() -> Result<Self, CallbackError> {
        let mut threads = Builder::new_current_thread();
        threads.max_blocking_threads(1).thread_name("adtrail-outbox");
        let runtime = threads.build().map_err(CallbackError::Thread)?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Returns the result of `work`, which may wait for the store.
    ///
    /// # Errors
    /// If it has panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.handle.spawn_blocking(work).await
    }
}

impl Drop for OutboxThread {
    fn drop(&mut self) {
        // A task must not wait for the thread, as dropping the runtime would.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
