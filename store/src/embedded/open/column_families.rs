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
/// The start of the names of the tables of touches, and their name in statistics.
pub const TOUCHES: &str = "touches";
/// The end of the name of a column family with the contents of touches; without it, a table of touches is an index.
pub const CONTENTS: &str = "-contents";
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
/// Callbacks about decisions.
pub const OUTBOX: &str = "outbox";
pub const META: &str = "meta";

/// The tables that every store has.
pub const FIXED_TABLES: [&str; 9] =
    [EVENTS, ACTIVATIONS, EFFECTS, OFFSETS, CELLS, COUNTS, CAMPAIGN_INDEX, OUTBOX, META];

/// The limits beyond which compactions remove rows, facts and callbacks.
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

/// The fixed tables and the column families `touches` of tables of touches, and the options of further ones: of an
/// index and of contents.
pub fn descriptors(
    budget: &Budget,
    cache: &rocksdb::Cache,
    limits: &Limits,
    touches: &[String],
) -> (Vec<ColumnFamilyDescriptor>, [Options; 2]) {
    let facts = |family| options::facts(budget, cache, family, &limits.expiry);
    let table = |name: &str| match name {
        EVENTS => options::events(budget, cache, &limits.retention),
        ACTIVATIONS => facts(Family::Activation),
        EFFECTS => facts(Family::Effect),
        CELLS => options::cells(),
        COUNTS => options::counts(budget, cache, &limits.retention),
        CAMPAIGN_INDEX => options::campaign_index(budget, cache, &limits.retention),
        OUTBOX => options::outbox(budget, cache, &limits.expiry),
        // Positions and metadata are small.
        _ => Options::default(),
    };
    let touch_options = || {
        [
            options::touch_index(budget, cache, &limits.expiry),
            options::touch_contents(budget, cache, &limits.expiry),
        ]
    };
    let mut tables: Vec<_> =
        FIXED_TABLES.iter().map(|name| ColumnFamilyDescriptor::new(*name, table(name))).collect();
    for name in touches {
        let [index, contents] = touch_options();
        let options = if name.ends_with(CONTENTS) { contents } else { index };
        tables.push(ColumnFamilyDescriptor::new(name, options));
    }
    (tables, touch_options())
}
