//! Third-party programs on both ends: producers and schema registries, and readers of exports.
#![cfg(test)]

mod appsflyer;
mod avro;
mod openapi;
mod page;
mod producers;
mod readers;
mod registry;
mod registry_load;
