//! Backup, verification and copying of a store.

pub mod backup;
pub(crate) mod copy_piece;
pub mod copy_store;
pub(crate) mod incomplete_marker;
pub mod verify;
