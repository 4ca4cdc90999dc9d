//! The web pages for marketers: HTML rendered by the server, with one small, optional script. Nothing is loaded from
//! elsewhere.
//!
//! The form's state is in the URL ([`export_form::state`]), so it can be bookmarked and shared. A device's id is not:
//! it is posted, because URLs end up in histories and logs, and a handle in the URL stands for it
//! ([`lookup::recent`]).

mod assets;
mod callbacks;
mod export_form;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod history;
mod home;
mod http;
mod layout;
mod links;
pub(crate) mod lookup;
mod preview;
mod sign_in;
mod templates;
#[cfg(test)]
mod tests;
mod unknown_campaigns;

pub(crate) use assets::asset;
pub(crate) use callbacks::callbacks;
pub(crate) use history::exports;
pub(crate) use home::{download, home};
pub(crate) use http::problem::{into_page, reads_pages};
pub(crate) use links::links;
pub(crate) use lookup::activation::activation;
pub(crate) use lookup::device::{device, devices};
pub(crate) use sign_in::{page as sign_in, sign_in as signed_in, sign_out};
