//! The metrics of the spool. recovered + spooled = drained + rejected + waiting, unless files are damaged.

use ::metrics::{Gauge, counter, gauge};

use crate::metrics::{self, OwnedLabels, UNAVAILABLE};

config::describe_metrics! {
    /// Events of an earlier process that were in the spool at start.
    describe_counter RECOVERED = "adtrail_collect_spool_recovered_total";
    /// Events of the spool that Kafka has acknowledged.
    describe_counter DRAINED = "adtrail_collect_spool_drained_total";
    /// Events of the spool that Kafka will never accept; they are in the spool's rejected-*.ndjson.
    describe_counter REJECTED = "adtrail_collect_spool_rejected_total";
    /// Segments of the spool with damage; what can be read of them is produced.
    describe_counter DAMAGED = "adtrail_collect_spool_damaged_segments_total";
    /// Events that the spool did not take, by reason: full, disk.
    describe_counter FAILURES = "adtrail_collect_spool_failures_total";
    /// Events in the spool.
    describe_gauge EVENTS = "adtrail_collect_spool_events";
    /// Size of the files of the spool.
    describe_gauge BYTES = "adtrail_collect_spool_bytes";
    /// Maximum size of the files of the spool: collect.spool_bytes_max.
    describe_gauge LIMIT = "adtrail_collect_spool_limit_bytes";
}

pub(super) struct SpoolMetrics {
    events: Gauge,
    bytes: Gauge,
}

impl SpoolMetrics {
    pub fn new(bytes_max: u64) -> Self {
        describe();
        gauge!(LIMIT).set(bytes_max as f64);
        for name in [RECOVERED, DRAINED, REJECTED, DAMAGED] {
            counter!(name).increment(0);
        }
        Self { events: gauge!(EVENTS), bytes: gauge!(BYTES) }
    }

    pub fn recovered(&self, events: u64) {
        counter!(RECOVERED).increment(events);
    }

    pub fn spooled(&self, labels: &OwnedLabels) {
        metrics::spooled(labels.as_labels());
    }

    /// An event that the spool has not taken. It is answered with an error.
    pub fn refused(&self, labels: &OwnedLabels, reason: &'static str) {
        counter!(FAILURES, "reason" => reason).increment(1);
        metrics::refused(labels.as_labels(), UNAVAILABLE);
    }

    pub fn drained(&self, acknowledged: u64, rejected: u64) {
        counter!(DRAINED).increment(acknowledged);
        counter!(REJECTED).increment(rejected);
    }

    pub fn damaged(&self) {
        counter!(DAMAGED).increment(1);
    }

    pub fn holds(&self, events: u64, bytes: u64) {
        self.events.set(events as f64);
        self.bytes.set(bytes as f64);
    }
}
