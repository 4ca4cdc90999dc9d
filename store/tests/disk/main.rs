//! The store as files: opened, damaged, backed up, verified, and with other layout versions.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod backup;
mod interrupted;
mod layouts;
mod verify;
