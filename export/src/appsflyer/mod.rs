//! AppsFlyer's raw data: its columns, which marketers' pipelines read already, and its Pull API,
//! newest rows first, for connectors that only have their host changed.
//!
//! What a column holds is told in `docs/appsflyer.md`. A cell that adtrail knows nothing of is empty.

pub mod column;
mod error;
pub mod field_list;
pub mod pull_api;
pub mod report;
#[cfg(test)]
mod tests;

pub use error::in_its_form;
pub use pull_api::raw_data;
