//! HTTP out: notifies ad networks and other servers of attributed activations and effects.
//!
//! A preset says in a file what a network wants to hear, and an endpoint is a preset with the settings of its user. A
//! callback is a function of an event, an endpoint and a time; whether it is due, and what becomes of it, is in the
//! outbox, which this crate reaches through the port [`Queue`]. It knows no store and makes no attribution decision.
//!
//! Requests carry tokens of other companies and go to URLs that arrive inside public clicks, so each is checked by
//! `address` before it is sent, and nothing but [`Shown`], without ids and tokens, is kept of it.
//!
//! Start with `delivery`, which sends what is due. `endpoint` makes requests from a `preset`, in `callback/presets/`,
//! whose texts are a `template`; `answer` judges responses.

mod address;
mod answer;
mod credential;
mod crypto;
mod decimal;
mod delivery;
mod endpoint;
mod error;
mod event;
mod metrics;
mod preset;
mod resolver;
mod sign;
mod template;
mod webhook;

pub use crate::metrics::count_too_old;
pub use delivery::deliver;
pub use delivery::queue::{Attempt, Claimed, Claims, Finished, Outcome, Queue, QueueError};
pub use delivery::sender::{Clock, Sender};
pub use delivery::timing::Timing;
pub use endpoint::Endpoint;
pub use endpoint::request::Shown;
pub use error::{CallbackError, EndpointError};
pub use event::{CallbackEvent, Credit, Earlier};
pub use preset::catalogue::Presets;
