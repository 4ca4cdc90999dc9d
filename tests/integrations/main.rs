//! Programs of others on both ends: producers and registries, and those who read exports.
#![cfg(test)]

mod appsflyer;
mod avro;
mod openapi;
mod page;
mod producers;
mod readers;
mod registry;
mod registry_load;
