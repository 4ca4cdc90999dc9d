//! Commands on a whole store: copy it, check it, and restore it.

pub mod backup;
pub mod copy;
pub mod restore;
pub mod verify;
