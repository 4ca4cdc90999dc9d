//! Planted damages: each is found and named, and what is derived is made right again.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod altered;
mod bed;
mod files;
mod kept;
mod rekeyed;
mod tables;
mod whole;
