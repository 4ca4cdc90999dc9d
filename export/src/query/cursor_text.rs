//! The form of cursors in URLs: base64 of a version, the position after which a page begins, and 32 bits of a hash of
//! both and of the query. A forged cursor gains nothing: it only selects a position among rows that the caller may
//! read anyway.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::xxh3_64;

const VERSION: u8 = 1;

/// Returns the position and the hash.
pub(crate) fn parse(text: &str) -> Option<(Vec<u8>, u32)> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    let (rest, hash) = bytes.split_last_chunk()?;
    let position = rest.strip_prefix(&[VERSION])?.to_vec();
    Some((position, u32::from_be_bytes(*hash)))
}

pub(crate) fn text(position: &[u8], hash: u32) -> String {
    BASE64_URL_SAFE_NO_PAD.encode([&[VERSION][..], position, &hash.to_be_bytes()].concat())
}

/// Hashes a position and the query.
pub(crate) fn hash(position: &[u8], query: &[u8]) -> u32 {
    xxh3_64(&[&[VERSION][..], position, query].concat()) as u32
}
