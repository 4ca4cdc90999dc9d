//! Writes CSV cells.

/// Most cells are at most this long.
const SHORT: usize = 32;
static COMMAS: [u8; SHORT] = [b','; SHORT];

/// A cell that is written often, already quoted if necessary.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    /// The cell, padded to at least [`SHORT`] bytes.
    padded: Vec<u8>,
    len: usize,
}

impl Cell {
    pub fn new(text: &str) -> Self {
        let mut padded = Vec::new();
        write_text(text, &mut padded);
        let len = padded.len();
        padded.resize(len.max(SHORT), 0);
        Self { padded, len }
    }

    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        write_bytes(&self.padded, self.len, out);
    }
}

/// Appends the first `len` bytes. Most cells have few bytes, and copying a fixed length is cheaper than a call for
/// the exact one.
#[inline]
pub(crate) fn write_bytes(bytes: &[u8], len: usize, out: &mut Vec<u8>) {
    match bytes.first_chunk::<SHORT>() {
        Some(short) if len <= SHORT => {
            let end = out.len() + len;
            out.extend_from_slice(short);
            out.truncate(end);
        }
        _ => out.extend_from_slice(bytes.get(..len).unwrap_or_default()),
    }
}

/// Maximum of [`write_commas`].
pub(crate) const COMMAS_MAX: usize = SHORT;

/// Appends `count` commas, at most [`COMMAS_MAX`].
#[inline]
pub(crate) fn write_commas(count: usize, out: &mut Vec<u8>) {
    write_bytes(&COMMAS, count, out);
}

pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    if text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        write_quoted(text.as_bytes(), out);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

pub(crate) fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if text.contains(&b'"') {
        for part in text.split_inclusive(|byte| *byte == b'"') {
            out.extend_from_slice(part);
            if part.ends_with(b"\"") {
                out.push(b'"');
            }
        }
    } else {
        // Usually a user agent, which contains a comma.
        out.extend_from_slice(text);
    }
    out.push(b'"');
}
