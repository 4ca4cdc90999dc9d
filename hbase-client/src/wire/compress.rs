//! Blocks of cells, compressed. Gzip alone: every HBase has it without native libraries.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::WireError;
use super::frame::ANSWER_BYTES_MAX;

/// How blocks of cells travel; the same in both directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    /// Saves bytes on a slow network and costs both sides time.
    Gzip,
}

impl Compression {
    /// The class that the server unpacks with.
    pub fn class(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("org.apache.hadoop.io.compress.GzipCodec"),
        }
    }

    pub fn pack(self, cells: Bytes) -> Bytes {
        if self == Self::None || cells.is_empty() {
            return cells;
        }
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        // Writing into memory does not fail; should it, the bytes that come are not gzip's, which
        // the server says.
        let _ = encoder.write_all(&cells);
        encoder.finish().map_or(cells, Bytes::from)
    }

    /// # Errors
    /// Where it is not packed so, or becomes larger than any answer.
    pub fn unpack(self, cells: Bytes) -> Result<Bytes, WireError> {
        if self == Self::None || cells.is_empty() {
            return Ok(cells);
        }
        let mut out = Vec::new();
        let most = ANSWER_BYTES_MAX as u64;
        MultiGzDecoder::new(&cells[..])
            .take(most + 1)
            .read_to_end(&mut out)
            .map_err(|error| WireError::unreadable("a compressed block of cells", error))?;
        if out.len() > ANSWER_BYTES_MAX {
            return Err(WireError::TooLong { announced: out.len(), most: ANSWER_BYTES_MAX });
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let cells = Bytes::from(vec![9; 100_000]);
        for compression in [Compression::None, Compression::Gzip] {
            let packed = compression.pack(cells.clone());
            assert_eq!(compression.unpack(packed).unwrap(), cells);
            assert!(compression.pack(Bytes::new()).is_empty());
            assert!(compression.unpack(Bytes::new()).unwrap().is_empty());
        }
        assert!(Compression::Gzip.pack(cells.clone()).len() < 1_000);
    }

    #[test]
    fn what_is_not_packed_or_cut_is_an_error() {
        let packed = Compression::Gzip.pack(Bytes::from_static(b"some cells"));
        for bytes in [Bytes::from_static(b"plain"), packed.slice(..packed.len() - 1)] {
            assert!(Compression::Gzip.unpack(bytes).is_err());
        }
    }
}
