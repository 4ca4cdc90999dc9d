//! The hash that represents an event's id in keys.
//!
//! Ids are untrusted. With a non-cryptographic hash, an attacker could construct a second id with the same hash, and
//! the event with this id would replace another one.

use sha2::{Digest, Sha256};

use super::event::IdSpace;

/// Disjoint parts of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The hash parts of a fact key: 64 and 48 bits.
    pub fact: (u64, u64),
    /// The hash part of a row key.
    pub row: u64,
}

/// Hashes the id space and the id, so the same id in two spaces gives two identities.
pub fn identity(space: IdSpace, id: &str) -> Identity {
    let hash = Sha256::new().chain_update([space as u8]).chain_update(id).finalize();
    let bits = |from: usize, bytes: usize| {
        hash[from..from + bytes].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    Identity { fact: (bits(0, 8), bits(8, 6)), row: bits(24, 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored keys contain these values (`printf '\000c1' | sha256sum`), so they never change.
    #[test]
    fn the_parts_of_the_hash_never_change() {
        let identity_of_touch = identity(IdSpace::Click, "c1");
        assert_eq!(
            (identity_of_touch.fact, identity_of_touch.row),
            ((0x2f12_5dbb_f456_d3eb, 0x13b3_98d8_7910), 0x34ba_849b_3614_0b92)
        );
        assert_ne!(identity(IdSpace::Effect, "c1").row, identity_of_touch.row);
        assert_ne!(identity(IdSpace::Impression, "c1").fact, identity_of_touch.fact);
    }
}
