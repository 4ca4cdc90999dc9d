//! The adtrail program: wires settings, store, ingest, attribution and export together.
//!
//! [`run`] is the service, for production and tests. The other commands are in [`commands`].

pub mod cli;
pub mod commands;
mod conformance;
mod counted;
pub mod demo;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod http_client;
pub mod open_files;
mod service;
pub mod telemetry;
mod timing;

pub use service::run;
pub use timing::Timing;

/// See `docs/decisions/allocator.md`.
// `fuzz/` has its own allocator, which counts allocations.
#[cfg(not(feature = "fuzzing"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
