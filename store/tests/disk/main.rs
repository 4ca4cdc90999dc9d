//! The store as files: opened, damaged, backed up, verified, and of other layouts.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod backup;
mod cut_off;
mod layouts;
mod verify;
