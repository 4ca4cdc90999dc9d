//! The framing of a record's value, which names its writer's schema.
//!
//! It is detected from the content, in the format of Confluent's serializers: a header with the schema's GUID, or a
//! first byte of the value, 0 or 1, that gives the kind of the key that follows. JSON begins with neither of these
//! bytes.

use super::{DecodeError, ErrorCode};
use crate::registry::SchemaKey;

/// The header that names the schema if the value itself does not.
pub const HEADER: &str = "__value_schema_id";
/// Precedes an id: 4 bytes, big-endian.
const ID: u8 = 0;
/// Precedes a GUID: 16 bytes.
const GUID: u8 = 1;

/// A value, with the key of its schema if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed<'a> {
    /// A value without a schema key: JSON.
    Bare(&'a [u8]),
    Named(SchemaKey, &'a [u8]),
}

/// Removes the frame. `header` is the value of the header [`HEADER`].
pub fn unframed<'a>(value: &'a [u8], header: Option<&[u8]>) -> Result<Framed<'a>, DecodeError> {
    if let Some(header) = header {
        let (key, rest) =
            key(header)?.ok_or_else(|| bad(&format!("{HEADER} begins with another byte")))?;
        return if rest.is_empty() {
            Ok(Framed::Named(key, value))
        } else {
            Err(bad(&format!("{HEADER} is too long")))
        };
    }
    Ok(key(value)?.map_or(Framed::Bare(value), |(key, datum)| Framed::Named(key, datum)))
}

fn key(bytes: &[u8]) -> Result<Option<(SchemaKey, &[u8])>, DecodeError> {
    match bytes {
        [ID, rest @ ..] => match rest.split_first_chunk() {
            Some((id, rest)) => Ok(Some((SchemaKey::Id(u32::from_be_bytes(*id)), rest))),
            None => Err(bad("it ends within the id")),
        },
        [GUID, rest @ ..] => match rest.split_first_chunk() {
            Some((guid, rest)) => Ok(Some((SchemaKey::Guid(*guid), rest))),
            None => Err(bad("it ends within the GUID")),
        },
        _ => Ok(None),
    }
}

fn bad(problem: &str) -> DecodeError {
    let message = format!(
        "the schema key is malformed: {problem}; expected a byte 0 and an id of 4 bytes, or a byte 1 \
         and a GUID of 16 bytes"
    );
    DecodeError::new(ErrorCode::NotAvro, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID_7: SchemaKey = SchemaKey::Id(7);

    #[track_caller]
    fn check(value: &[u8], header: Option<&[u8]>, expected: Option<Framed<'_>>) {
        let found = unframed(value, header);
        match expected {
            Some(expected) => assert_eq!(found, Ok(expected)),
            None => assert_eq!(found.map_err(|error| error.code), Err(ErrorCode::NotAvro)),
        }
    }

    #[test]
    fn the_schema_key_is_read_from_the_value() {
        let guid = *b"0123456789abcdef";
        let framed = [&[GUID][..], &guid, b"datum"].concat();
        check(b"{}", None, Some(Framed::Bare(b"{}")));
        check(b"", None, Some(Framed::Bare(b"")));
        check(b"\x02", None, Some(Framed::Bare(b"\x02")));
        check(b"\0\0\0\0\x07datum", None, Some(Framed::Named(ID_7, b"datum")));
        check(b"\0\xff\xff\xff\xff", None, Some(Framed::Named(SchemaKey::Id(u32::MAX), b"")));
        check(b"\0\0\0\0", None, None);
        check(b"\0", None, None);
        check(&framed, None, Some(Framed::Named(SchemaKey::Guid(guid), b"datum")));
        check(&framed[..16], None, None);
    }

    #[test]
    fn the_schema_key_is_read_from_the_header() {
        let guid = *b"0123456789abcdef";
        let header = [&[GUID][..], &guid].concat();
        let named = Framed::Named(SchemaKey::Guid(guid), b"\0datum");
        check(b"\0datum", Some(&header), Some(named));
        check(b"{}", Some(b"\0\0\0\0\x07"), Some(Framed::Named(ID_7, b"{}")));
        check(b"{}", Some(b""), None);
        check(b"{}", Some(&header[..16]), None);
        check(b"{}", Some(&[&header[..], b"x"].concat()), None);
        check(b"{}", Some(b"7"), None);
    }
}
