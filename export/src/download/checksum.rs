//! The checksum by which a client detects a truncated or modified file.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// An incremental SHA-256.
#[derive(Debug, Clone, Default)]
pub struct Checksum(Sha256);

impl Checksum {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hexadecimal digits, as `sha256sum` prints them.
    pub fn text(self) -> String {
        self.0.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to memory cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}
