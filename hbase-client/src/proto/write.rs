//! Encodes messages without building them first, for calls with thousands of nested messages. Tests decode the result
//! with the messages of [`super::data`].

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{
    DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, skip_field,
};
use prost::{DecodeError, Message};

/// Writes a bytes field.
pub fn bytes(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Writes an integer or a bool.
pub fn number(out: &mut Vec<u8>, tag: u32, value: impl Into<u64>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value.into(), out);
}

/// Writes a nested message, whose length is known only afterwards.
pub fn nested(out: &mut Vec<u8>, tag: u32, write: impl FnOnce(&mut Vec<u8>)) {
    encode_key(tag, WireType::LengthDelimited, out);
    let length_at = out.len();
    // Most lengths take one byte.
    out.push(0);
    let begin = out.len();
    write(out);
    let (end, length) = (out.len(), (out.len() - begin) as u64);
    let width = encoded_len_varint(length);
    out.resize(length_at + width + (end - begin), 0);
    out.copy_within(begin..end, length_at + width);
    encode_varint(length, &mut &mut out[length_at..length_at + width]);
}

/// An encoded message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EncodedMessage(pub Bytes);

impl Message for EncodedMessage {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Skips all fields: this type is never received.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::common::NameBytesPair;
    use crate::proto::data::Filter;

    #[test]
    fn written_fields_equal_the_encoded_message() {
        for length in [0, 1, 100, 127, 128, 129, 16_383, 16_384, 70_000] {
            let value = vec![7; length];
            let mut out = Vec::new();
            bytes(&mut out, 1, b"name");
            bytes(&mut out, 2, &value);
            let value: Option<Bytes> = Some(value.into());
            let filter = Filter { name: "name".to_owned(), serialized_filter: value };
            assert_eq!(out, filter.encode_to_vec());
        }
    }

    #[test]
    fn nested_messages_are_prefixed_with_their_length() {
        for length in [0, 1, 120, 121, 122, 123, 127, 128, 16_000, 16_383, 16_384, 3_000_000] {
            let value = vec![7; length];
            let mut out = Vec::new();
            nested(&mut out, 5, |out| {
                bytes(out, 1, b"n");
                nested(out, 2, |out| out.extend_from_slice(&value));
            });
            let (key, rest) = out.split_first().unwrap();
            assert_eq!(*key, 5 << 3 | 2);
            let pair = NameBytesPair::decode_length_delimited(rest).unwrap();
            assert_eq!(pair, NameBytesPair { name: "n".to_owned(), value: Some(value.into()) });
        }
    }

    #[test]
    fn numbers_are_varints() {
        let mut out = Vec::new();
        number(&mut out, 3, u64::MAX);
        number(&mut out, 4, true);
        assert_eq!(out, [&[0x18][..], &[0xff; 9], &[1, 0x20, 1]].concat());
    }
}
