//! The page: what a marketer sees. Made here as HTML, with one small script that nothing depends
//! on: without it a download is a download and a form is a form. Nothing is loaded from elsewhere.
//!
//! What is chosen stands in the address ([`choice`]), so it can be kept and sent to others. A
//! device's id does not: it is posted, because addresses end up in histories and logs, and a handle
//! stands for it ([`lookups`]).

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

/// Where the pages are that a person can be led to.
pub(crate) const PATHS: [&str; 5] = ["/", "/download", "/exports", "/activations", "/devices"];
