//! HTTP: the router, the listeners, authentication, and what all routes share. Start with `router`.

pub(crate) mod access;
pub mod admin;
pub(crate) mod answers;
pub(crate) mod audit;
pub(crate) mod extract;
pub(crate) mod gate;
pub(crate) mod hosts;
pub(crate) mod problem;
pub(crate) mod refusal;
pub(crate) mod respond;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod server;
pub(crate) mod state;
