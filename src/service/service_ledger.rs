//! The ledgers of both stores, as the attribution thread uses them.

use store::StoreError;
use store::embedded::{Embedded, StatusCounts};
use store::hbase::cluster::Cluster;
use store::hbase::ledger::SharedLedger;

use super::worker_settings::WorkerSettings;

/// What the service needs of a ledger, besides attribution.
pub trait ServiceLedger {
    /// Returns the number of rows by status; empty if the store does not count them.
    fn status_counts(&self) -> StatusCounts;

    /// Takes the settings of apps for the next batches. No commit is in flight.
    fn take_settings(&mut self, settings: &WorkerSettings) -> Result<(), StoreError>;
}

impl ServiceLedger for Embedded {
    fn status_counts(&self) -> StatusCounts {
        Self::status_counts(self)
    }

    fn take_settings(&mut self, settings: &WorkerSettings) -> Result<(), StoreError> {
        self.set_apps(&settings.store, &settings.policy)
    }
}

impl ServiceLedger for SharedLedger<Cluster> {
    fn status_counts(&self) -> StatusCounts {
        StatusCounts::new()
    }

    fn take_settings(&mut self, settings: &WorkerSettings) -> Result<(), StoreError> {
        if let Some(apps) = &settings.ledger_apps {
            self.set_apps(apps);
        }
        Ok(())
    }
}
