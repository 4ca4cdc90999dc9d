//! Frames. A request is a length (u32), a header, a parameter and a cell block; a response is a length, a header, a
//! message and a cell block. Header, parameter and message are prefixed with their lengths as varints; the length of
//! the cell block is in the header.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::WireError;
use crate::proto::rpc::{
    CellBlockMeta, ConnectionHeader, ExceptionResponse, RequestHeader, ResponseHeader,
};

/// `HBas`, version 0, and the authentication method: 0x50 (SIMPLE) trusts the user name. Kerberos would be 0x51,
/// followed by a negotiation before the header.
const PREAMBLE: &[u8] = b"HBas\x00\x50";

/// The maximum length of a response. HBase sends no longer ones: a greater length means another protocol.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The size of the length prefix of a frame.
pub const LENGTH_BYTES: usize = 4;

/// Returns the first bytes of a connection.
pub fn greeting(header: &ConnectionHeader) -> Bytes {
    let mut out = BytesMut::with_capacity(PREAMBLE.len() + LENGTH_BYTES + header.encoded_len());
    out.put_slice(PREAMBLE);
    out.put_u32(header.encoded_len() as u32);
    out.put_slice(&header.encode_to_vec());
    out.freeze()
}

/// A request frame.
#[derive(Debug)]
pub struct Request<'a, M> {
    pub call_id: u32,
    pub method: &'static str,
    pub timeout_ms: u32,
    pub priority: Option<u32>,
    pub param: &'a M,
    pub cells: &'a [u8],
}

impl<M: Message> Request<'_, M> {
    /// Encodes the frame, including its length.
    pub fn encode(&self) -> Bytes {
        let length = self.cells.len() as u32;
        let header = RequestHeader {
            call_id: Some(self.call_id),
            method_name: Some(self.method.to_owned()),
            // The parameter is always present, with length 0 if it is empty.
            request_param: Some(true),
            cell_block_meta: (length > 0).then_some(CellBlockMeta { length: Some(length) }),
            priority: self.priority,
            timeout: Some(self.timeout_ms),
        };
        let lengths = [header.encoded_len(), self.param.encoded_len()];
        let messages: usize =
            lengths.iter().map(|&length| encoded_len_varint(length as u64) + length).sum();
        let bytes = messages + self.cells.len();
        let mut out = BytesMut::with_capacity(LENGTH_BYTES + bytes);
        out.put_u32(bytes as u32);
        encode_varint(lengths[0] as u64, &mut out);
        header.encode_raw(&mut out);
        encode_varint(lengths[1] as u64, &mut out);
        self.param.encode_raw(&mut out);
        out.put_slice(self.cells);
        out.freeze()
    }
}

/// Decodes the length of a response.
///
/// # Errors
/// Fails if the length is 0 or greater than [`RESPONSE_BYTES_MAX`].
pub fn response_length(length: [u8; LENGTH_BYTES]) -> Result<usize, WireError> {
    let declared = u32::from_be_bytes(length) as usize;
    match declared {
        0 => Err(WireError::Malformed("the response is empty")),
        1..=RESPONSE_BYTES_MAX => Ok(declared),
        _ => Err(WireError::TooLong { declared, bytes_max: RESPONSE_BYTES_MAX }),
    }
}

/// A response, decoded as far as possible without knowing the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub call_id: u32,
    pub outcome: Result<Payload, ExceptionResponse>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Payload {
    pub message: Bytes,
    pub cells: Bytes,
}

impl Payload {
    /// Decodes the message.
    ///
    /// # Errors
    /// Fails if it is not a message of this type.
    pub fn decode<M: Message + Default>(&self) -> Result<M, WireError> {
        M::decode(self.message.clone())
            .map_err(|error| WireError::unreadable("the response message", error))
    }
}

impl Response {
    /// Decodes a frame without its length.
    ///
    /// # Errors
    /// Fails if it is not a response.
    pub fn decode(mut frame: Bytes) -> Result<Self, WireError> {
        let header = ResponseHeader::decode(delimited(&mut frame, "the response header")?)
            .map_err(|error| WireError::unreadable("the response header", error))?;
        let Some(call_id) = header.call_id else {
            return Err(WireError::Malformed("the response has no call id"));
        };
        if let Some(exception) = header.exception {
            return Ok(Self { call_id, outcome: Err(exception) });
        }
        let message = delimited(&mut frame, "the response message")?;
        let cells = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0) as usize;
        if cells != frame.len() {
            return Err(WireError::Truncated { part: "the cell block of the response" });
        }
        Ok(Self { call_id, outcome: Ok(Payload { message, cells: frame }) })
    }
}

fn delimited(frame: &mut Bytes, part: &'static str) -> Result<Bytes, WireError> {
    let length =
        prost::decode_length_delimiter(&mut *frame).map_err(|_| WireError::Truncated { part })?;
    if length > frame.remaining() {
        return Err(WireError::Truncated { part });
    }
    Ok(frame.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::rpc::{Empty, UserInformation};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn greeting_is_encoded_as_hbase_expects() {
        let greeting = greeting(&ConnectionHeader {
            user_info: Some(UserInformation { effective_user: "root".to_owned() }),
            service_name: Some("ClientMetaService".to_owned()),
            ..ConnectionHeader::default()
        });
        let expected = "4842617300500000001b0a060a04726f6f741211436c69656e744d65746153657276696365";
        assert_eq!(hex(&greeting), expected);
    }

    #[test]
    fn request_is_encoded_as_hbase_expects() {
        let (param, method) = (&Empty {}, "GetClusterId");
        let (timeout_ms, priority) = (10_000, None);
        let request = Request { call_id: 1, method, timeout_ms, priority, param, cells: &[] };
        let expected = "000000171508011a0c476574436c75737465724964200138904e00";
        assert_eq!(hex(&request.encode()), expected);
    }

    fn response(header: &ResponseHeader, message: &[u8], cells: &[u8]) -> Vec<u8> {
        let mut bytes = header.encode_length_delimited_to_vec();
        encode_varint(message.len() as u64, &mut bytes);
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(cells);
        bytes
    }

    fn header(cells: u32) -> ResponseHeader {
        let cell_block_meta = Some(CellBlockMeta { length: Some(cells) });
        ResponseHeader { call_id: Some(7), exception: None, cell_block_meta }
    }

    #[test]
    fn response_has_message_and_cells() {
        let bytes = response(&header(3), b"ab", b"xyz");
        let decoded = Response::decode(bytes.into()).unwrap();
        let payload =
            Payload { message: Bytes::from_static(b"ab"), cells: Bytes::from_static(b"xyz") };
        assert_eq!(decoded, Response { call_id: 7, outcome: Ok(payload) });
    }

    #[test]
    fn response_truncated_anywhere_is_an_error() {
        let bytes = response(&header(3), b"ab", b"xyz");
        for end in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..end]);
            assert!(Response::decode(cut).is_err(), "truncated at {end}");
        }
    }

    #[test]
    fn wrong_length_of_the_cell_block_is_an_error() {
        for (declared, cells) in [(3, &b"wxyz"[..]), (0, b"x")] {
            let bytes = response(&header(declared), b"ab", cells);
            assert!(Response::decode(bytes.into()).is_err(), "{declared}");
        }
    }

    #[test]
    fn response_without_a_call_id_is_an_error() {
        let bytes = response(&ResponseHeader::default(), b"", b"");
        assert!(matches!(Response::decode(bytes.into()), Err(WireError::Malformed(_))));
    }

    #[test]
    fn first_bytes_of_other_protocols_are_not_valid_lengths() {
        for first in [b"HTTP", b"SSH-", b"\x15\x03\x01\x00", b"\0\0\0\0"] {
            assert!(response_length(*first).is_err(), "{first:?}");
        }
        assert_eq!(response_length([0, 1, 0, 0]), Ok(65_536));
    }
}
