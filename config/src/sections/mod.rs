//! One module per table of the settings file.
//!
//! Start with `catalogue`: apps, channels and campaigns, and the rules of each.

pub(crate) mod attribution_rules;
pub(crate) mod callbacks;
pub(crate) mod catalogue;
pub(crate) mod collect;
pub(crate) mod credentials;
pub(crate) mod formats;
pub(crate) mod fraud;
pub(crate) mod hbase;
pub(crate) mod kafka;
pub(crate) mod known_ids;
pub(crate) mod librdkafka;
pub(crate) mod links;
pub(crate) mod registry;
pub(crate) mod signatures;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod tokens;
