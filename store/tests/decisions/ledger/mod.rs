//! What every ledger does, one suite for all of them; and what a store on disk does besides.

/// Makes a test of each function, for each ledger.
macro_rules! suite {
    (on_hbase_too: $($test:ident)*) => {
        suite! { $($test)* }

        mod on_hbase {
            $(#[test]
            fn $test() {
                let policy = crate::support::rules::rules();
                let cluster = crate::support::hbase::tables_of(concat!("port_", stringify!($test)), 1);
                super::$test(&mut crate::support::hbase::ledger(&cluster, &policy));
                crate::support::hbase::remove(&cluster);
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
