//! JSON endpoints: summaries, timelines, explanations, campaigns and their devices.

pub(crate) mod campaign_devices;
pub(crate) mod catalogue;
pub(crate) mod explain;
pub(crate) mod summary;
pub(crate) mod timeline;
