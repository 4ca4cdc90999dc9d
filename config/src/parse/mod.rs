//! Parses TOML, environment variables and flags into typed values. Each value keeps its location for error messages.
//!
//! Start with `section`, which reads one table; `layers` merges the sources, `report` collects errors.

pub(crate) mod address;
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod layers;
pub(crate) mod report;
pub(crate) mod secret;
pub(crate) mod section;
pub(crate) mod size;
pub(crate) mod tree;
