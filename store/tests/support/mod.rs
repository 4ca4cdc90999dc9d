//! Shared by the test binaries: facts described in a line, the worker over any ledger, and rows as text.
#![allow(dead_code, reason = "each test binary uses only a part")]
// Marks these modules as tests, so that clippy.toml allows `expect` and `panic` here.
#![cfg(test)]

pub mod cells;
pub mod crashing_on_commit;
pub mod disk;
pub mod facts;
pub mod folders;
pub mod hbase;
pub mod normalise;
pub mod outbox;
pub mod race;
pub mod random;
pub mod reference;
pub mod row_text;
pub mod rules;
pub mod run;
pub mod traffic;
