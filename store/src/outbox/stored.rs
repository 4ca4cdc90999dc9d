//! Records as they were read, some of which may be damaged.

use attribution::outbox::record::OutboxRecord;

use crate::StoreError;

/// A record as it was read; an error if it is damaged.
pub(crate) type StoredRecord = Result<OutboxRecord, StoreError>;

/// The error of due records that cannot be read. They were removed from the due index, so that they delay no others.
pub(crate) fn unreadable_records(count: usize) -> StoreError {
    StoreError::corrupt(format!(
        "outbox records, whose callbacks are not sent until they are repaired: {count}"
    ))
}
