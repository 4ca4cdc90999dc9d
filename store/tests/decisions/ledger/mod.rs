//! One suite for all ledgers, and tests of the store on disk.

/// Defines a test per function and ledger.
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

mod damage;
mod directory;
mod engine;
mod facts;
mod given;
mod model;
mod reading;
mod regions;
mod row_figures;
mod rows;
mod space;
mod timeline;
mod torn;

pub use given::*;

use crate::support;
