//! Commands that need no running service: they read files and write to standard output.
#![cfg(test)]

mod check_events;
mod conformance;
mod demo;
mod explain;
mod packages;
mod replay;
mod replay_diff;
mod schemas;
mod surface;
