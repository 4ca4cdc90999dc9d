//! HTTP: the routes of networks, people and apps. Start with `router`.

mod appsflyer;
mod body;
mod client;
mod events;
mod go;
mod problem;
mod report;
pub(crate) mod router;
mod tokens;
