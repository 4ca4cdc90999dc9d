//! Touches, in tables by day of event time, or by week as long as there are few:
//! `docs/decisions/touches-by-day.md` explains the design.
//!
//! A table of touches is two column families: an index, with the keys of [`crate::layout::key`], and the contents of
//! its touches, under ascending numbers. Its record in `meta` says which days it has, so it exists exactly from the
//! write batch with its first touch until the one that drops it. `tables` lists the tables for all threads, `write`
//! adds touches to a batch, `read` finds them, `filters` builds the filters at start. Start with `tables`.

pub(crate) mod filter;
pub(crate) mod filters;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod tables;
pub(crate) mod write;
