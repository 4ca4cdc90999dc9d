//! Decompression of files: gzip and zstd, recognized by their first bytes, independent of the file name.
//!
//! All members of a gzip file and all frames of a zstd file are read. A file that is truncated or damaged ends with
//! an error, never as if it were complete.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// Bytes that identify a format.
const MAGIC_BYTES: u64 = 4;
/// Size of the buffers before and after decompression.
const BUFFER_BYTES: usize = 1 << 18;

enum Format {
    Plain,
    Gzip,
    Zstd,
}

/// Returns the text of a file, decompressed if needed.
///
/// # Errors
/// Returns errors of reading the first bytes. Damage found later is an error of the returned reader.
pub fn decompressed<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut magic = Vec::new();
    source.by_ref().take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let format = format(&magic);
    let file = Cursor::new(magic).chain(BufReader::with_capacity(BUFFER_BYTES, source));
    let decoder: Box<dyn Read + 'a> = match format {
        Format::Plain => return Ok(Box::new(file)),
        Format::Gzip => Box::new(MultiGzDecoder::new(file)),
        Format::Zstd => Box::new(zstd::Decoder::with_buffer(file)?),
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn is_plain(file: &[u8]) -> bool {
    matches!(format(file), Format::Plain)
}

/// Detects the format. No event begins with the first bytes of a compressed file.
fn format(file: &[u8]) -> Format {
    match file {
        [0x1f, 0x8b, ..] => Format::Gzip,
        // A frame or a skippable frame; the output of pzstd begins with the latter.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
        _ => Format::Plain,
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

    /// Compresses with a checksum, like the `zstd` command.
    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        decompressed(file)?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn formats_are_detected_by_their_first_bytes() {
        for plain in [TEXT, b"", b"\n", b"\x1f", b"P*M", b"P*M+", b"{}"] {
            assert_eq!(read(plain).unwrap(), plain);
        }
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(TEXT)].concat();
        assert_eq!(read(&skippable).unwrap(), TEXT);
        for compress in [gzip, zstd] {
            let joined = [compress(TEXT), compress(b""), compress(TEXT)].concat();
            assert_eq!(read(&joined).unwrap(), TEXT.repeat(2));
        }
    }

    #[test]
    fn truncated_and_damaged_files_are_errors() {
        for (compress, checksum_bytes) in [(gzip as fn(&[u8]) -> Vec<u8>, 8), (zstd, 4)] {
            let whole = compress(TEXT);
            let twice = whole.repeat(2);
            // A file shorter than the magic bytes is plain text.
            for length in (4..twice.len()).filter(|length| *length != whole.len()) {
                let error = read(&twice[..length]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}: {error}");
            }
            let mut wrong_sum = whole.clone();
            wrong_sum[whole.len() - checksum_bytes] ^= 1;
            let trailing = [&whole[..], b"{\"type\":\"click\"}\n"].concat();
            assert!(read(&wrong_sum).is_err() && read(&trailing).is_err());
        }
    }
}
