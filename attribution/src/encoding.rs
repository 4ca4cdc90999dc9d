//! Numbers and texts as they are encoded in stored values, specified in `docs/format.md`.

/// What is wrong with encoded bytes.
pub type Damage = &'static str;

pub const TRUNCATED: Damage = "a truncated value";

/// The length of the longest varint of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Returns the length of an encoded number.
pub fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Returns the length of an encoded text.
pub fn text_len(text: &str) -> usize {
    varint_len(text.len() as u64) + text.len()
}

/// Splits the bytes after a number.
#[inline]
pub fn split_varint(bytes: &[u8]) -> Result<(u64, &[u8]), Damage> {
    // Most numbers are lengths, and short.
    match bytes {
        [byte @ ..0x80, rest @ ..] => Ok((u64::from(*byte), rest)),
        _ => split_long_varint(bytes),
    }
}

fn split_long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), Damage> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            // Only the shortest encoding of at most 64 bits is valid.
            if *byte == 0 || (index == VARINT_BYTES_MAX - 1 && *byte > 1) {
                return Err("an invalid varint");
            }
            return Ok((value, bytes.get(index + 1..).unwrap_or_default()));
        }
    }
    let is_truncated = bytes.len() < VARINT_BYTES_MAX;
    Err(if is_truncated { TRUNCATED } else { "a number of more than 64 bits" })
}

/// Splits the bytes after a text.
#[inline]
pub fn split_text(bytes: &[u8]) -> Result<(&str, &[u8]), Damage> {
    let (len, rest) = split_varint(bytes)?;
    let len = usize::try_from(len).map_err(|_| TRUNCATED)?;
    let (text, rest) = rest.split_at_checked(len).ok_or(TRUNCATED)?;
    let text = std::str::from_utf8(text).map_err(|_| "text that is not UTF-8")?;
    Ok((text, rest))
}

/// Appends the number of pairs, then their keys and values.
pub fn put_pairs<'a>(out: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) {
    put_varint(out, pairs.clone().count() as u64);
    for (key, value) in pairs {
        put_text(out, key);
        put_text(out, value);
    }
}

/// Returns the length of encoded pairs.
pub fn pairs_len<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> usize {
    let (mut count, mut len) = (0, 0);
    for (key, value) in pairs {
        count += 1;
        len += text_len(key) + text_len(value);
    }
    varint_len(count) + len
}

/// Checks pairs, and returns the bytes after them.
pub fn split_pairs(bytes: &[u8]) -> Result<&[u8], Damage> {
    let (count, mut rest) = split_varint(bytes)?;
    for _ in 0..count {
        (_, rest) = split_text(rest)?;
        (_, rest) = split_text(rest)?;
    }
    Ok(rest)
}

/// Reads values that were checked before. Damage is read as zeros and empty texts.
#[derive(Debug, Clone, Copy)]
pub struct CheckedBytes<'a>(&'a [u8]);

impl<'a> CheckedBytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    #[inline]
    pub fn varint(&mut self) -> u64 {
        let (number, rest) = split_varint(self.0).unwrap_or_default();
        self.0 = rest;
        number
    }

    #[inline]
    pub fn text(&mut self) -> &'a str {
        let (text, rest) = split_text(self.0).unwrap_or_default();
        self.0 = rest;
        text
    }

    /// Skips this number of texts.
    pub fn skip_texts(&mut self, count: usize) {
        for _ in 0..count {
            let len = usize::try_from(self.varint()).unwrap_or(usize::MAX);
            self.0 = self.0.get(len..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<u64>) {
        let found = split_varint(bytes).ok().map(|(number, _)| number);
        assert_eq!(found, expected, "{bytes:02x?}");
    }

    #[test]
    fn only_the_shortest_varint_is_valid() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 62, 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            check(&bytes, Some(number));
            assert_eq!(bytes.len(), varint_len(number));
        }
        check(&[0x80, 0], None);
        check(&[0xff, 0x80, 0], None);
        check(&[0xff; 9], None);
        let beyond = [&[0xff; 9][..], &[2]].concat();
        check(&beyond, None);
        check(&[0xff; 10], None);
    }

    #[test]
    fn texts_are_decoded_as_they_were_encoded() {
        let long = "ü".repeat(100);
        for text in ["", "a", &long] {
            let mut bytes = Vec::new();
            put_text(&mut bytes, text);
            assert_eq!(bytes.len(), text_len(text));
            bytes.push(7);
            assert_eq!(split_text(&bytes), Ok((text, &[7][..])));
            assert!(split_text(&bytes[..bytes.len() - 2]).is_err(), "cut");
        }
        assert!(split_text(&[1, 0xff]).is_err(), "not UTF-8");
    }
}
