//! The web pages for marketers: HTML rendered by the server, with one small, optional script. Nothing is loaded from
//! elsewhere.
//!
//! The form's state is in the URL ([`export_form::state`]), so it can be bookmarked and shared. A device's id is not:
//! it is posted, because URLs end up in histories and logs, and a handle in the URL stands for it
//! ([`recent_lookups`]).

mod assets;
mod device;
mod export_form;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod history;
mod home;
mod layout;
mod preview;
mod problem;
pub(crate) mod recent_lookups;
mod request;
mod respond;
mod sign_in;
mod templates;
#[cfg(test)]
mod tests;

pub(crate) use assets::asset;
pub(crate) use device::{activation, device, devices};
pub(crate) use history::exports;
pub(crate) use home::{download, home};
pub(crate) use problem::{into_page, reads_pages};
pub(crate) use sign_in::{page as sign_in, sign_in as signed_in, sign_out};

/// The pages to which signing in may redirect.
pub(crate) const PATHS: [&str; 5] = ["/", "/download", "/exports", "/activations", "/devices"];
