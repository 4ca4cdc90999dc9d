//! Requests and responses of pages. Start with `request`, which every page handler takes.

pub(crate) mod problem;
pub(super) mod request;
pub(super) mod respond;
