//! The forms in which rows, facts and counts are stored, whatever keeps them.

pub mod campaign_index;
pub mod codec;
pub mod decimal_sum;
pub mod hourly_counts;
pub mod key;
pub mod region;
pub mod row_ref;
pub mod stored_row;
pub mod summary_counts;
