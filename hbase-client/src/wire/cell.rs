//! Cells in the format of HBase's `KeyValueCodec`, with all numbers big-endian:
//!
//! ```text
//! u32 length of the rest · u32 key length · u32 value length ·
//! u16 row length · row · u8 family length · family · qualifier · u64 timestamp · u8 kind · value
//! ```

use bytes::{Buf, BufMut, Bytes};

use super::WireError;

/// The timestamp to send for a cell without one: the server replaces it with its own time.
pub const LATEST: u64 = i64::MAX as u64;

pub const ROW_BYTES_MAX: usize = i16::MAX as usize;
pub const FAMILY_BYTES_MAX: usize = i8::MAX as usize;

/// The size of the length fields of key and value.
const LENGTHS_BYTES: usize = 8;
/// The size of a key with empty row, family and qualifier: the length fields of row and family, timestamp and kind.
const KEY_BYTES_MIN: usize = 2 + 1 + STAMP_BYTES;
/// The size of timestamp and kind.
const STAMP_BYTES: usize = 9;
/// The minimum size of a cell in a block, including its length field.
pub const CELL_BYTES_MIN: usize = 4 + LENGTHS_BYTES + KEY_BYTES_MIN;

/// The type of a cell: a put, or a delete marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Put,
    /// Deletes one version of a column.
    Delete,
    /// Deletes one version of all columns of a family.
    DeleteFamilyVersion,
    /// Deletes the versions of a column up to the timestamp.
    DeleteColumn,
    /// Deletes the cells of a family up to the timestamp.
    DeleteFamily,
}

impl Kind {
    pub fn code(self) -> u8 {
        match self {
            Self::Put => 4,
            Self::Delete => 8,
            Self::DeleteFamilyVersion => 10,
            Self::DeleteColumn => 12,
            Self::DeleteFamily => 14,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            4 => Self::Put,
            8 => Self::Delete,
            10 => Self::DeleteFamilyVersion,
            12 => Self::DeleteColumn,
            14 => Self::DeleteFamily,
            _ => return None,
        })
    }
}

/// The fields of a cell to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: u64,
    pub kind: Kind,
    pub value: &'a [u8],
}

impl Parts<'_> {
    fn key_bytes(&self) -> usize {
        KEY_BYTES_MIN + self.row.len() + self.family.len() + self.qualifier.len()
    }

    /// Returns the number of bytes that [`Parts::put`] writes.
    pub fn encoded_len(&self) -> usize {
        4 + LENGTHS_BYTES + self.key_bytes() + self.value.len()
    }

    /// Appends the encoded cell. The caller must limit the lengths of row and family, as `Action::check` does.
    pub fn put(&self, out: &mut Vec<u8>) {
        let key_bytes = self.key_bytes();
        out.reserve(self.encoded_len());
        out.put_u32((LENGTHS_BYTES + key_bytes + self.value.len()) as u32);
        out.put_u32(key_bytes as u32);
        out.put_u32(self.value.len() as u32);
        out.put_u16(self.row.len() as u16);
        out.extend_from_slice(self.row);
        out.put_u8(self.family.len() as u8);
        out.extend_from_slice(self.family);
        out.extend_from_slice(self.qualifier);
        out.put_u64(self.timestamp);
        out.put_u8(self.kind.code());
        out.extend_from_slice(self.value);
    }

    /// Returns the cell with these parts, for tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn cell(&self) -> Result<Cell, WireError> {
        let mut out = Vec::new();
        self.put(&mut out);
        Cell::take(&mut out.into())
    }
}

/// A decoded cell. It shares the buffer of its response; [`Cell::detached`] copies it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The encoded cell without its leading length.
    bytes: Bytes,
    key_bytes: u32,
    row_bytes: u16,
    family_bytes: u8,
}

impl Cell {
    pub fn row(&self) -> &[u8] {
        &self.bytes[LENGTHS_BYTES + 2..self.row_end()]
    }

    pub fn family(&self) -> &[u8] {
        &self.bytes[self.row_end() + 1..self.family_end()]
    }

    pub fn qualifier(&self) -> &[u8] {
        &self.bytes[self.family_end()..self.key_end() - STAMP_BYTES]
    }

    pub fn timestamp(&self) -> u64 {
        (&self.bytes[self.key_end() - STAMP_BYTES..]).get_u64()
    }

    /// Returns `None` for a kind that this crate does not know.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_code(self.bytes[self.key_end() - 1])
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_end()..]
    }

    /// Returns the value without copying it.
    pub fn value_bytes(&self) -> Bytes {
        self.bytes.slice(self.key_end()..)
    }

    /// Returns a copy that does not keep the response's buffer in memory.
    pub fn detached(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), ..*self }
    }

    /// Decodes and removes the first cell of a block.
    ///
    /// # Errors
    /// Fails if the cell is truncated or has inconsistent lengths.
    pub fn take(block: &mut Bytes) -> Result<Self, WireError> {
        const TRUNCATED: WireError = WireError::Truncated { part: "a cell" };
        if block.len() < 4 {
            return Err(TRUNCATED);
        }
        let length = block.get_u32() as usize;
        if length > block.len() {
            return Err(TRUNCATED);
        }
        Self::parse(block.split_to(length))
    }

    fn parse(mut bytes: Bytes) -> Result<Self, WireError> {
        const INCONSISTENT: WireError = WireError::Malformed("a cell has inconsistent lengths");
        if bytes.len() < LENGTHS_BYTES + KEY_BYTES_MIN {
            return Err(WireError::Truncated { part: "a cell" });
        }
        let mut head = &bytes[..LENGTHS_BYTES + 2];
        let (key_bytes, value_bytes) = (head.get_u32(), head.get_u32());
        let row_bytes = head.get_u16();
        let cell_bytes = LENGTHS_BYTES as u64 + u64::from(key_bytes) + u64::from(value_bytes);
        if cell_bytes > bytes.len() as u64
            || (key_bytes as usize) < KEY_BYTES_MIN + row_bytes as usize
        {
            return Err(INCONSISTENT);
        }
        let row_end = LENGTHS_BYTES + 2 + usize::from(row_bytes);
        let family_bytes = bytes[row_end];
        let used = KEY_BYTES_MIN + usize::from(row_bytes) + usize::from(family_bytes);
        if (key_bytes as usize) < used {
            return Err(INCONSISTENT);
        }
        // Drops the tags, which follow the value.
        bytes.truncate(cell_bytes as usize);
        Ok(Self { bytes, key_bytes, row_bytes, family_bytes })
    }

    fn row_end(&self) -> usize {
        LENGTHS_BYTES + 2 + usize::from(self.row_bytes)
    }

    fn family_end(&self) -> usize {
        self.row_end() + 1 + usize::from(self.family_bytes)
    }

    fn key_end(&self) -> usize {
        LENGTHS_BYTES + self.key_bytes as usize
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (row, family) = (self.row().escape_ascii(), self.family().escape_ascii());
        let (qualifier, value) = (self.qualifier().escape_ascii(), self.value().escape_ascii());
        write!(f, "{row}/{family}:{qualifier}/{}/{:?}={value}", self.timestamp(), self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Parts<'_> = Parts {
        row: b"row",
        family: b"f",
        qualifier: b"qq",
        timestamp: 0x0102_0304_0506_0708,
        kind: Kind::Put,
        value: b"value",
    };

    fn encoded(parts: &Parts<'_>) -> Bytes {
        let mut out = Vec::new();
        parts.put(&mut out);
        assert_eq!(out.len(), parts.encoded_len());
        out.into()
    }

    #[test]
    fn layout_matches_key_value_codec() {
        let expected = b"\0\0\0\x1f\0\0\0\x12\0\0\0\x05\0\x03row\x01fqq\x01\x02\x03\x04\x05\x06\x07\x08\x04value";
        assert_eq!(&encoded(&PARTS)[..], expected);
    }

    #[track_caller]
    fn check_round_trip(parts: Parts<'_>) {
        let mut block = encoded(&parts);
        let cell = Cell::take(&mut block).unwrap();
        assert!(block.is_empty());
        let read = Parts {
            row: cell.row(),
            family: cell.family(),
            qualifier: cell.qualifier(),
            timestamp: cell.timestamp(),
            kind: cell.kind().unwrap(),
            value: cell.value(),
        };
        assert_eq!(read, parts);
        assert_eq!(cell.detached(), cell);
    }

    #[test]
    fn cells_survive_a_round_trip() {
        check_round_trip(PARTS);
        check_round_trip(Parts { qualifier: b"", value: b"", ..PARTS });
        check_round_trip(Parts { kind: Kind::DeleteFamily, timestamp: LATEST, ..PARTS });
        check_round_trip(Parts { row: &[7; ROW_BYTES_MAX], ..PARTS });
    }

    #[test]
    fn cell_truncated_anywhere_is_an_error() {
        let whole = encoded(&PARTS);
        for end in 0..whole.len() {
            assert!(Cell::take(&mut whole.slice(..end)).is_err(), "truncated at {end}");
        }
    }

    #[test]
    fn inconsistent_lengths_are_errors() {
        // The offsets of the lengths of key, value, row and family.
        for at in [7, 11, 13, 17] {
            let mut bytes = encoded(&PARTS).to_vec();
            bytes[at] = 0x7f;
            assert!(Cell::take(&mut bytes.into()).is_err(), "at {at}");
        }
    }

    #[test]
    fn tags_are_dropped() {
        let mut bytes = encoded(&PARTS).to_vec();
        bytes[3] += 4;
        bytes.extend_from_slice(b"tags");
        let mut block = Bytes::from(bytes);
        assert_eq!(Cell::take(&mut block).unwrap().value(), b"value");
        assert!(block.is_empty());
    }
}
