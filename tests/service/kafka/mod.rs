//! Topics, records and consumer groups of every kind, and the commands for them.

mod bad_input;
mod group;
mod partition_affinity;
mod peek;
mod replay_dlq;
mod stored_topics;
mod topics;
