//! The forms in which rows, facts and counts are stored, whatever keeps them.

pub mod row_ref;
pub mod stored_row;
