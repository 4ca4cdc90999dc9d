//! HTTP: the routes of networks and of apps. Start with `router`.

mod body;
mod events;
mod problem;
mod report;
pub(crate) mod router;
mod tokens;
