//! What is written to a row ([`Put`], [`Delete`], [`CheckAndMutate`]), which cells are read ([`Get`], [`Selection`]),
//! and the [`Row`] that is returned. Start with `action`.

mod action;
mod row;
mod selection;

pub(crate) use action::{Action, Change, NewCell, Outcome};
pub use action::{CheckAndMutate, Delete, Get, Mutation, Put};
pub use row::Row;
pub(crate) use row::{ScanResult, from_result, from_scan};
pub use selection::Selection;
