//! What the tests of the engine and of the ledgers share: facts in a line, the worker over any
//! ledger, and rows as text.
#![allow(dead_code, reason = "every test binary uses a part of it")]
// What clippy.toml lets tests do, this does too: it fails loudly.
#![cfg(test)]

pub mod cells;
pub mod disk;
pub mod dying;
pub mod facts;
pub mod hbase;
pub mod race;
pub mod random;
pub mod reference;
pub mod rules;
pub mod run;
pub mod show;
pub mod traffic;
