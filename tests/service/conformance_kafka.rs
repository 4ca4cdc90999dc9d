//! The conformance suite through Kafka, the service over RocksDB, and HTTP.

use super::conformance_runner::{Backend, check_cases};

#[test]
fn contract_cases_hold_through_kafka() {
    check_cases(&Backend {
        name: "conformance",
        first_case: 0,
        // A site's own store is in its folder.
        prepare: |site, _| site,
        remove: |_| (),
    });
}
