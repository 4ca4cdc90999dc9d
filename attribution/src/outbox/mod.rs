//! The outbox: what is to be sent to ad networks and webhooks about decisions, as data.
//!
//! A commit puts an entry for each endpoint that wants the decision ([`interest`]) into the record of the event
//! ([`record`]), in the same write. When the entry is due, delivery compares it with the present decision
//! ([`settle`](settle::settle)), claims it, sends it and finishes it (`transitions`), through the [`port`] that each
//! store implements. [`newest`] lists them for people. Everything here is a pure function; times are passed in.
//!
//! `docs/decisions/outbox.md` explains the design. Start with [`record`].

pub mod interest;
pub mod newest;
pub mod port;
pub mod record;
pub mod settle;
mod transitions;

#[cfg(test)]
mod tests;

use crate::rules::policy::DAY_MS;

/// How long the record of an event is kept after the last change of an entry, if none is pending. An entry that is
/// planned again later has reached its maximum age, so nothing is sent twice.
pub const KEPT_MS: u64 = 7 * DAY_MS;

/// Every attempt ends within this time, because the lease of a claim is shorter.
const ATTEMPT_MS_MAX: u64 = 2 * 60 * 1_000;

/// The limit of [`interest::Interest::max_age_ms`], which leaves time for all attempts before a record is removed.
pub const MAX_AGE_MS_MAX: u64 = 5 * DAY_MS;
