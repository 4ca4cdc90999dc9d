//! The checksum that a file is told apart by from one that was cut or changed.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// SHA-256 of bytes that come one after the other.
#[derive(Debug, Clone, Default)]
pub struct Checksum(Sha256);

impl Checksum {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits, as `sha256sum` prints it.
    pub fn text(self) -> String {
        self.0.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to memory can not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}
