//! How cursors stand in addresses: as base64 of a version, the place after which a page begins, and 32 bits of a hash of
//! these and of what the request asks for. A forged cursor gains nothing: it only says where to go on among rows that
//! may be read anyway.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::xxh3_64;

const VERSION: u8 = 1;

/// The place and its hash.
pub(crate) fn parse(text: &str) -> Option<(Vec<u8>, u32)> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    let (rest, hash) = bytes.split_last_chunk()?;
    let place = rest.strip_prefix(&[VERSION])?.to_vec();
    Some((place, u32::from_be_bytes(*hash)))
}

pub(crate) fn text(place: &[u8], hash: u32) -> String {
    BASE64_URL_SAFE_NO_PAD.encode([&[VERSION][..], place, &hash.to_be_bytes()].concat())
}

/// The hash of a place and of what is asked for.
pub(crate) fn hash(place: &[u8], asked: &[u8]) -> u32 {
    xxh3_64(&[&[VERSION][..], place, asked].concat()) as u32
}
