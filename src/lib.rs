//! adtrail in one process: settings, store, ingest, attribution and export wired together.
//!
//! Nothing is decided here. [`run`] is the service, for production and tests alike; the other commands are in
//! [`commands`].

/// Where a test can make the process end, as a kill would; nothing in the program that people run.
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(feature = "crash-points")]
        fail::fail_point!($name, |_| std::process::abort());
    };
}

pub mod cli;
pub mod commands;
mod conformance;
pub mod demo;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod service;
pub mod telemetry;
mod timing;

pub use service::run;
pub use timing::Timing;

/// See `docs/decisions/allocator.md`.
// That of `fuzz/` counts.
#[cfg(not(feature = "fuzzing"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
