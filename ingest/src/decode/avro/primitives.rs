//! The primitives of Avro's binary encoding.

/// An error in the bytes, as text for the message of a dead letter.
pub type Problem = &'static str;

const TRUNCATED: Problem = "the data ends";

/// The unread bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Problem> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Reads a zigzag number: seven bits per byte, least significant first.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Problem> {
        // Fast path: most numbers are lengths and union branches of one byte.
        if let [byte @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(zigzag(u64::from(*byte)));
        }
        self.multi_byte_long()
    }

    #[inline(never)]
    fn multi_byte_long(&mut self) -> Result<i64, Problem> {
        let mut number = 0_u64;
        for (index, byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                if index == 9 && *byte > 1 {
                    break;
                }
                self.0 = self.0.get(index + 1..).unwrap_or_default();
                return Ok(zigzag(number));
            }
        }
        Err(if self.0.len() < 10 { TRUNCATED } else { "a number is beyond 64 bits" })
    }

    pub fn int(&mut self) -> Result<i32, Problem> {
        i32::try_from(self.long()?).map_err(|_| "an int is beyond 32 bits")
    }

    /// Reads a length or an index.
    pub fn count(&mut self) -> Result<usize, Problem> {
        usize::try_from(self.long()?).map_err(|_| "a length is negative")
    }

    pub fn boolean(&mut self) -> Result<bool, Problem> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err("a boolean is neither 0 nor 1"),
        }
    }

    pub fn blob(&mut self) -> Result<&'a [u8], Problem> {
        let count = self.count()?;
        self.take(count)
    }

    pub fn text(&mut self) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.blob()?).map_err(|_| "a string is not UTF-8")
    }

    /// Reads the header of a block: its number of elements, 0 at the end, and its length in bytes if present.
    pub fn block(&mut self) -> Result<(u64, Option<usize>), Problem> {
        let count = self.long()?;
        let bytes = if count < 0 { Some(self.count()?) } else { None };
        Ok((count.unsigned_abs(), bytes))
    }
}

fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<i64, Problem>) {
        assert_eq!(Bytes(bytes).long(), expected, "{bytes:02x?}");
    }

    #[test]
    fn zigzag_numbers_are_read() {
        check(&[0], Ok(0));
        check(&[1], Ok(-1));
        check(&[2], Ok(1));
        check(&[0x7f], Ok(-64));
        check(&[0x80, 1], Ok(64));
        check(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(i64::MAX));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(i64::MIN));
        check(&[0x80, 0], Ok(0));
        check(&[], Err(TRUNCATED));
        check(&[0x80], Err(TRUNCATED));
        check(&[0xff; 9], Err(TRUNCATED));
        check(&[0xff; 10], Err("a number is beyond 64 bits"));
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        check(&over, Err("a number is beyond 64 bits"));
        assert_eq!(Bytes(&[0xfe, 0xff, 0xff, 0xff, 0x0f]).int(), Ok(i32::MAX));
        assert!(Bytes(&[0x80, 0x80, 0x80, 0x80, 0x10]).int().is_err());
        assert!(Bytes(&[1]).count().is_err());
    }
}
