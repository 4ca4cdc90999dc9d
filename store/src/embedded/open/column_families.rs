//! The column families of RocksDB and their options.

use attribution::facts::event::Family;
use attribution::rules::policy::Policy;
use rocksdb::{ColumnFamilyDescriptor, Options};

use super::memory_budget::Budget;
use super::options;
use crate::expiry::Expiry;
use crate::expiry::retention::Retention;

/// Exported rows.
pub(crate) const EVENTS: &str = "events";
pub const TOUCHES: &str = "touches";
pub const ACTIVATIONS: &str = "activations";
pub const EFFECTS: &str = "effects";
/// Kafka positions.
pub const OFFSETS: &str = "offsets";
/// Hourly counts of rows.
pub const CELLS: &str = "cells";
/// Summary counts of rows, by quarter of an hour.
pub const COUNTS: &str = "counts";
/// Credited activations by campaign.
pub const CAMPAIGN_INDEX: &str = "brought";
pub const META: &str = "meta";

pub const TABLES: [&str; 9] =
    [EVENTS, TOUCHES, ACTIVATIONS, EFFECTS, OFFSETS, CELLS, COUNTS, CAMPAIGN_INDEX, META];

/// The limits beyond which compactions remove rows and facts.
pub struct Limits {
    pub retention: Retention,
    pub expiry: Expiry,
}

impl Limits {
    /// Limits by which compactions remove nothing.
    pub fn none() -> Self {
        let expiry = Expiry::new(&Policy::default(), |_| None);
        Self { retention: Retention::default(), expiry }
    }
}

pub fn descriptors(
    budget: &Budget,
    cache: &rocksdb::Cache,
    limits: &Limits,
) -> Vec<ColumnFamilyDescriptor> {
    let facts = |family| options::facts(budget, cache, family, &limits.expiry);
    let table = |name: &str| {
        let options = match name {
            EVENTS => options::events(budget, cache, &limits.retention),
            TOUCHES => facts(Family::Touch),
            ACTIVATIONS => facts(Family::Activation),
            EFFECTS => facts(Family::Effect),
            CELLS => options::cells(),
            COUNTS => options::counts(budget, cache, &limits.retention),
            CAMPAIGN_INDEX => options::campaign_index(budget, cache, &limits.retention),
            // Positions and metadata are small.
            _ => Options::default(),
        };
        ColumnFamilyDescriptor::new(name, options)
    };
    TABLES.iter().map(|name| table(name)).collect()
}
