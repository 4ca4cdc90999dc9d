//! The commands that need no service: files in, answers on standard output.
#![cfg(test)]

mod conformance;
mod demo;
mod explain;
mod replay;
mod replay_diff;
mod schemas;
mod surface;
