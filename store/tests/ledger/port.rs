//! What every ledger does, for tests of one more.

pub use given::*;

use super::contract::support;

mod facts;
mod given;
