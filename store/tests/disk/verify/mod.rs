//! Injected damage: `verify` finds and names it, and `repair` restores all derived data.

mod altered_facts;
mod callbacks;
mod files;
pub mod fixture;
mod metadata;
mod tables;
mod undamaged;

use crate::support;
