//! Backup, verification and copying of a store.

pub mod backup;
pub(crate) mod copy_item;
pub mod copy_store;
pub(crate) mod incomplete_marker;
pub mod verify;
