//! Expiry while a store is open: by a low watermark that no power failure can take back.

use attribution::facts::event::EventTime;
use attribution::rules::policy::{HOUR_MS, Policy};
use rocksdb::WriteBatch;

use super::Embedded;
use super::write::batch_writer::write_options;
use crate::StoreError;
use crate::expiry::floor::RetainedFloor;

impl Embedded {
    /// Compacts all tables, which removes expired facts and rows past retention from the disk.
    ///
    /// # Errors
    /// If the log cannot be synced.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.tables.db.flush_wal(true)?;
        self.synced_expiry.until().advance(self.stored_expiry.until().get().unwrap_or_default());
        self.tables.compact();
        Ok(())
    }

    /// State that expired under shorter, earlier settings and stays expired.
    pub fn retained_floors(&self, policy: &Policy) -> Vec<RetainedFloor> {
        self.expiry.retained_floors(policy, self.expiry.until().get())
    }

    /// Checks whether a low watermark is in a later hour than the one by which facts expire.
    pub(super) fn begins_hour(&self, until: Option<EventTime>) -> bool {
        let hour = |until: Option<EventTime>| until.map_or(0, |until| until.millis() / HOUR_MS);
        hour(until) > hour(self.synced_expiry.until().get())
    }

    /// Drops the tables of touches that have expired.
    pub(super) fn drop_expired_touches(&mut self) -> Result<(), StoreError> {
        let expired = self.touches.expired(&self.synced_expiry);
        if expired.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::default();
        self.touches.delete(&expired, &self.tables.meta(), &mut batch);
        // A power failure must not bring back the record of a table that is gone.
        let mut options = write_options();
        options.set_sync(true);
        self.tables.write(batch, &options)?;
        self.tables.touches.drop_tables(&self.tables.db, &expired);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use attribution::ledger::{Ledger, Progress};
    use rocksdb::statistics::Ticker;

    use super::*;
    use crate::embedded::fixtures::deferring;

    #[test]
    fn facts_expire_only_by_a_low_watermark_that_is_synced() {
        let (mut store, _dir) = deferring();
        let syncs = |store: &Embedded| store.tables.options.get_ticker_count(Ticker::WalFileSynced);
        let opened = syncs(&store);
        let mut check = |minutes: u64, synced: Option<u64>, count: u64| {
            let until = EventTime::default().plus(minutes * HOUR_MS / 60);
            let progress = Progress { positions: Vec::new(), consumed_until: Some(until) };
            store.commit(Vec::new(), &progress).unwrap();
            store.wait_for_commit().unwrap();
            assert_eq!(
                store.stored_expiry.until().get(),
                Some(until),
                "readers see what is stored"
            );
            let until = store.synced_expiry.until().get();
            assert_eq!(until.map(|until| until.millis() * 60 / HOUR_MS), synced);
            assert_eq!(syncs(&store) - opened, count, "at {minutes} minutes");
        };
        check(30, None, 0);
        check(61, Some(61), 1);
        check(119, Some(61), 1);
        check(500, Some(500), 2);
        check(510, Some(500), 2);
        store.compact().unwrap();
        assert_eq!(store.synced_expiry.until().get(), store.stored_expiry.until().get());
    }
}
