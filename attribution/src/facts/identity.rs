//! What stands for the id of an event in keys: parts of one hash of it.
//!
//! Ids come from outside, and of a hash that is none for cryptography somebody can find a second id with
//! the same value: his event would take the place of another's.

use sha2::{Digest, Sha256};

use super::event::Family;

/// Parts that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// 64 bits and 48, of a fact.
    pub fact: (u64, u64),
    /// Of a row.
    pub row: u64,
}

/// The family is hashed first: one id of two families is two identities.
pub fn identity(family: Family, id: &str) -> Identity {
    let hash = Sha256::new().chain_update([family as u8]).chain_update(id).finalize();
    let bits = |from: usize, bytes: usize| {
        hash[from..from + bytes].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    Identity { fact: (bits(0, 8), bits(8, 6)), row: bits(24, 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '\000c1' | sha256sum`: what is stored stands under these, so they never change.
    #[test]
    fn parts_of_the_hash() {
        let of = identity(Family::Touch, "c1");
        assert_eq!(
            (of.fact, of.row),
            ((0x2f12_5dbb_f456_d3eb, 0x13b3_98d8_7910), 0x34ba_849b_3614_0b92)
        );
        assert_ne!(identity(Family::Effect, "c1").row, of.row);
    }
}
