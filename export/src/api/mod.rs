//! Short JSON answers: summaries, timelines, explanations, the catalog.

pub(crate) mod campaign_devices;
pub(crate) mod catalog;
pub(crate) mod explain;
pub(crate) mod summary;
pub(crate) mod timeline;
