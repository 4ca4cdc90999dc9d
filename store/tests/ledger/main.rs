//! What every ledger does, one suite for all of them; and what a store on disk does besides.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod directory;
mod engine;
mod facts;
mod given;
mod model;
mod reading;
mod regions;
mod rows;
mod space;
mod timeline;
mod told;
mod torn;

pub use given::*;

/// Makes a test of each function, for each ledger.
macro_rules! suite {
    ($($test:ident)*) => {
        mod in_memory {
            $(#[test]
            fn $test() {
                super::$test(&mut adtrail_store::memory::Memory::default());
            })*
        }

        mod on_disk {
            $(#[test]
            fn $test() {
                let (mut store, _dir) = crate::support::run::on_disk(&crate::support::rules::rules());
                super::$test(&mut store);
            })*
        }
    };
}
pub(crate) use suite;
