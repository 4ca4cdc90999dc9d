//! One suite for all ledgers, and tests of the store on disk.

/// Defines one test per function and ledger.
macro_rules! suite {
    (with_hbase: $($test:ident)*) => {
        suite! { $($test)* }

        mod on_hbase {
            $(#[test]
            fn $test() {
                let policy = crate::support::rules::rules();
                let cluster = crate::support::hbase::create_tables(concat!("port_", stringify!($test)), 1);
                super::$test(&mut crate::support::hbase::ledger(&cluster, &policy));
                crate::support::hbase::delete_tables(&cluster);
            })*
        }
    };
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

mod aggregates;
mod damage;
mod damaged_log;
mod directory;
mod engine_stats;
mod facts;
mod fixtures;
mod in_flight;
mod model;
mod outbox;
mod reading;
mod reclaim_space;
mod regions;
mod rows;
mod timeline;
mod touches;

pub use fixtures::*;

use crate::support;
