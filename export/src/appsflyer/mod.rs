//! AppsFlyer's raw data: its columns, which existing pipelines read, and its Pull API, newest rows first, for
//! connectors of which only the host is changed.
//!
//! `docs/appsflyer.md` describes the columns. A cell for which adtrail has no value is empty.

pub mod column;
mod error;
pub mod field_list;
pub mod pull_api;
pub mod report;
#[cfg(test)]
mod tests;

pub use error::rewrite_problems;
pub use pull_api::raw_data;
