//! Compressed files: gzip and zstd, told by their first bytes, whatever the name.
//!
//! All members of a gzip file and all frames of a zstd file are read, as `cat` would join them. A
//! file that ends in the middle of one, or whose checksum is wrong, is an error and never an end. Zeros
//! after the last gzip member are no data: tapes and disks pad with them, and gzip passes them over.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::GzDecoder;

/// Bytes that tell a format.
const MAGIC_BYTES: usize = 4;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A zstd frame to skip, which some writers begin with; the first byte is 0x50 to 0x5f.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
/// Read, and decompressed, at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// The text of a file, decompressed if need be.
///
/// # Errors
/// What the source says while its first bytes are read; later reads say what is damaged.
pub fn plain<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    let format = Format::of(&magic);
    let whole = Cursor::new(magic).chain(BufReader::with_capacity(BUFFER_BYTES, source));
    let decoder: Box<dyn Read + 'a> = match format {
        None => return Ok(Box::new(whole)),
        Some(Format::Gzip) => Box::new(Members(Some(GzDecoder::new(whole)))),
        Some(Format::Zstd) => Box::new(zstd::Decoder::with_buffer(whole)?),
    };
    let format = format.map_or("", Format::name);
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, Checked { decoder, format })))
}

/// Whether these bytes are a text of their own.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    Format::of(bytes.get(..MAGIC_BYTES).unwrap_or(bytes)).is_none()
}

#[derive(Clone, Copy)]
enum Format {
    Gzip,
    Zstd,
}

impl Format {
    /// `None`: not compressed. No event begins with such bytes.
    fn of(magic: &[u8]) -> Option<Self> {
        let skippable = |(first, rest): (&u8, &[u8])| first >> 4 == 5 && rest == ZSTD_SKIPPABLE;
        if magic.starts_with(GZIP) {
            Some(Self::Gzip)
        } else if magic == ZSTD || magic.split_first().is_some_and(skippable) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// The members of a gzip file, one after the other; `None` after the last.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let length = member.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let Some(mut source) = self.0.take().map(GzDecoder::into_inner) else { break };
            let is_padded = skip_zeros(&mut source)?;
            if source.fill_buf()?.is_empty() {
                break;
            }
            if is_padded {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not all zeros"));
            }
            self.0 = Some(GzDecoder::new(source));
        }
        Ok(0)
    }
}

/// Whether there were any.
fn skip_zeros(source: &mut impl BufRead) -> io::Result<bool> {
    let mut were_any = false;
    loop {
        let bytes = source.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            return Ok(were_any);
        }
        were_any = true;
        source.consume(zeros);
    }
}

/// Says in plain words what is wrong with the compressed data.
struct Checked<R> {
    decoder: R,
    format: &'static str,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            let format = self.format;
            let problem = match error.kind() {
                // The source's own: a disk that fails, a signal.
                _ if error.raw_os_error().is_some() => return error,
                io::ErrorKind::Interrupted => return error,
                io::ErrorKind::UnexpectedEof => {
                    format!("the {format} data breaks off: the file is not whole")
                }
                _ => format!("the {format} data is damaged, or other bytes follow it: {error}"),
            };
            io::Error::new(error.kind(), problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const TEXT: &[u8] = b"one line\nanother line\n";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// With a checksum, as the `zstd` command writes them.
    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// A byte at a time, as from a slow pipe.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn read(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        plain(Slow(file))?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[track_caller]
    fn check(file: &[u8], expected: &[u8]) {
        assert_eq!(read(file).unwrap(), expected);
    }

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        check(TEXT, TEXT);
        check(&gzip(TEXT), TEXT);
        check(&zstd(TEXT), TEXT);
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(TEXT)].concat();
        check(&skippable, TEXT);
        for plain in [&b""[..], b"\n", b"\x1f", b"P*M", b"P*M+", b"{}"] {
            check(plain, plain);
        }
    }

    #[test]
    fn all_members_are_read() {
        for compress in [gzip, zstd] {
            check(&[compress(TEXT), compress(b""), compress(TEXT)].concat(), &TEXT.repeat(2));
        }
    }

    #[test]
    fn zeros_after_the_last_gzip_member_are_passed_over() {
        for zeros in [1, 2, 511, 1 << 20] {
            check(&[gzip(TEXT), gzip(TEXT), vec![0; zeros]].concat(), &TEXT.repeat(2));
        }
        for more in [gzip(TEXT), b"{}".to_vec()] {
            let error = read(&[gzip(TEXT), vec![0; 3], more].concat()).unwrap_err().to_string();
            assert!(error.contains("the gzip data is damaged"), "{error}");
        }
        let error = read(&[zstd(TEXT), vec![0; 4]].concat()).unwrap_err().to_string();
        assert!(error.contains("the zstd data"), "{error}");
    }

    #[test]
    fn a_file_that_breaks_off_is_an_error() {
        for compress in [gzip, zstd] {
            let whole = compress(TEXT);
            let twice = whole.repeat(2);
            // Less than the magic bytes is a text like any other.
            for length in (MAGIC_BYTES..twice.len()).filter(|length| *length != whole.len()) {
                let error = read(&twice[..length]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}: {error}");
                assert!(error.to_string().contains("not whole"), "{length}: {error}");
            }
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let checks = [(gzip as fn(&[u8]) -> Vec<u8>, "gzip", 8), (zstd, "zstd", 4)];
        for (compress, name, checksum_bytes) in checks {
            let mut wrong_sum = compress(TEXT);
            let at = wrong_sum.len() - checksum_bytes;
            wrong_sum[at] ^= 1;
            let trailing = [compress(TEXT), b"{\"type\":\"click\"}\n".to_vec()].concat();
            for file in [wrong_sum, trailing] {
                let error = read(&file).unwrap_err().to_string();
                assert!(error.contains(&format!("the {name} data is damaged")), "{error}");
            }
        }
    }
}
