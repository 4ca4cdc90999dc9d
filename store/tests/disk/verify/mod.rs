//! Injected damage: `verify` finds and names it, and `repair` restores all derived data.

mod altered;
pub mod bed;
mod files;
mod kept;
mod tables;
mod whole;

use crate::support;
