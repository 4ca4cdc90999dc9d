//! Facts, decisions, rows and Kafka positions under ordered keys.
//!
//! [`embedded`] keeps them in one RocksDB, [`hbase`] in tables that many processes share, and [`memory`] in maps, for
//! tests and benches. Each implements [`attribution::ledger::Ledger`] and, by itself or by a handle,
//! [`attribution::outbox::port::Outbox`]. [`mod@layout`] defines keys and values,
//! [`mod@reader`] reads an app's rows in key order from either store, and [`maintenance`] backs up, verifies and copies
//! stores.
//!
//! This crate makes no attribution decision. Start with [`layout::key`] and [`embedded`].

pub mod apps;
mod clock;
pub mod embedded;
mod error;
mod expiry;
mod fs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod hbase;
pub mod layout;
pub mod maintenance;
pub mod memory;
pub mod outbox;
pub mod reader;
mod timing;

use attribution::rules::policy::Policy;

pub use error::StoreError;
pub use expiry::floor::RetainedFloor;
pub use timing::Timing;

/// Opens the configured store for reading, beside the processes that write it.
///
/// # Errors
/// If the store cannot be read, or a pid belongs to another app than in `policy`.
pub fn open_for_reading(
    settings: &config::Store,
    policy: &Policy,
) -> Result<reader::Reader, StoreError> {
    let reader = match &settings.hbase {
        Some(hbase) => hbase::Shared::open(settings, hbase)?.reader(),
        None => embedded::open_for_reading(settings)?,
    };
    reader.require_apps(policy)?;
    Ok(reader)
}
