//! A hash of a record, to recognise it again.

use rdkafka::message::{BorrowedMessage, Message};
use xxhash_rust::xxh3::Xxh3Default;

/// Returns a hash of the record's timestamp, key and value. It is stored, so it must never change.
pub fn digest(message: &BorrowedMessage<'_>) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&message.timestamp().to_millis().unwrap_or(-1).to_be_bytes());
    for part in [message.key(), message.payload()] {
        let part = part.unwrap_or_default();
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.digest()
}
