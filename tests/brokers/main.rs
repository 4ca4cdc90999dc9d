//! Brokers of the test's own, which are broken, secured, or set up in another way.
#![cfg(test)]

mod alerts;
mod brokers;
mod deploy;
mod overtaken;
mod secured;
