//! Keys, codecs and aggregates, the same for all kinds of store. Start with [`key`] and `docs/format.md`.

pub mod campaign_index;
pub mod codec;
pub mod decimal_sum;
pub mod hourly_counts;
pub mod key;
pub mod outbox;
pub mod region;
pub mod row_meta;
pub mod stored_row;
pub mod summary_counts;
