//! Tests of the store's files: opening, damage, backup, verification and other layout versions.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod backup;
mod interrupted;
mod layouts;
mod verify;
