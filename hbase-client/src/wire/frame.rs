//! Frames. A request is its length (u32), a header, a parameter, a block of cells; an answer is
//! its length, a header, a message, a block of cells. Header and message have their lengths as
//! varints before them; the block's is in the header.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::WireError;
use crate::proto::rpc::{
    CellBlockMeta, ConnectionHeader, ExceptionResponse, RequestHeader, ResponseHeader,
};

/// `HBas`, version 0, and who we are: 0x50, nobody checks it. Kerberos would be 0x51, and then a
/// negotiation before the header.
const PREAMBLE: &[u8] = b"HBas\x00\x50";

/// No server answers with more; what announces more speaks another protocol.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Of the length before each frame.
pub const LENGTH_BYTES: usize = 4;

/// What a connection begins with.
pub fn greeting(header: &ConnectionHeader) -> Bytes {
    let mut out = BytesMut::with_capacity(PREAMBLE.len() + LENGTH_BYTES + header.encoded_len());
    out.put_slice(PREAMBLE);
    out.put_u32(header.encoded_len() as u32);
    out.put_slice(&header.encode_to_vec());
    out.freeze()
}

/// A call, whole.
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
    /// With the length before it.
    pub fn encode(&self) -> Bytes {
        let length = self.cells.len() as u32;
        let header = RequestHeader {
            call_id: Some(self.call_id),
            method_name: Some(self.method.to_owned()),
            // Always there, and of length 0 where it has nothing to say.
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

/// How many bytes the answer has whose length came.
///
/// # Errors
/// Where no answer has so many.
pub fn answer_length(length: [u8; LENGTH_BYTES]) -> Result<usize, WireError> {
    let announced = u32::from_be_bytes(length) as usize;
    match announced {
        0 => Err(WireError::Malformed("an answer without a byte")),
        1..=ANSWER_BYTES_MAX => Ok(announced),
        _ => Err(WireError::TooLong { announced, most: ANSWER_BYTES_MAX }),
    }
}

/// An answer, as far as it can be read without knowing what was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub call_id: u32,
    pub outcome: Result<Payload, ExceptionResponse>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Payload {
    pub message: Bytes,
    pub cells: Bytes,
}

impl Payload {
    /// # Errors
    /// Where it is another message.
    pub fn decode<M: Message + Default>(&self) -> Result<M, WireError> {
        M::decode(self.message.clone()).map_err(|error| WireError::unreadable("an answer", error))
    }
}

impl Answer {
    /// From what follows the length.
    ///
    /// # Errors
    /// Where it is no answer.
    pub fn decode(mut frame: Bytes) -> Result<Self, WireError> {
        let header = ResponseHeader::decode(delimited(&mut frame, "the header of an answer")?)
            .map_err(|error| WireError::unreadable("the header of an answer", error))?;
        let Some(call_id) = header.call_id else {
            return Err(WireError::Malformed("an answer that does not say to which call"));
        };
        if let Some(exception) = header.exception {
            return Ok(Self { call_id, outcome: Err(exception) });
        }
        let message = delimited(&mut frame, "the message of an answer")?;
        let cells = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0) as usize;
        if cells != frame.len() {
            return Err(WireError::Cut { part: "the cells of an answer" });
        }
        Ok(Self { call_id, outcome: Ok(Payload { message, cells: frame }) })
    }
}

fn delimited(frame: &mut Bytes, part: &'static str) -> Result<Bytes, WireError> {
    let length =
        prost::decode_length_delimiter(&mut *frame).map_err(|_| WireError::Cut { part })?;
    if length > frame.remaining() {
        return Err(WireError::Cut { part });
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
    fn greeting_is_as_hbase_takes_it() {
        let greeting = greeting(&ConnectionHeader {
            user_info: Some(UserInformation { effective_user: "root".to_owned() }),
            service_name: Some("ClientMetaService".to_owned()),
            ..ConnectionHeader::default()
        });
        let wanted = "4842617300500000001b0a060a04726f6f741211436c69656e744d65746153657276696365";
        assert_eq!(hex(&greeting), wanted);
    }

    #[test]
    fn request_is_as_hbase_takes_it() {
        let (param, method) = (&Empty {}, "GetClusterId");
        let (timeout_ms, priority) = (10_000, None);
        let request = Request { call_id: 1, method, timeout_ms, priority, param, cells: &[] };
        let wanted = "000000171508011a0c476574436c75737465724964200138904e00";
        assert_eq!(hex(&request.encode()), wanted);
    }

    fn answer(header: &ResponseHeader, message: &[u8], cells: &[u8]) -> Vec<u8> {
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
    fn answer_has_message_and_cells() {
        let bytes = answer(&header(3), b"ab", b"xyz");
        let read = Answer::decode(bytes.into()).unwrap();
        let payload =
            Payload { message: Bytes::from_static(b"ab"), cells: Bytes::from_static(b"xyz") };
        assert_eq!(read, Answer { call_id: 7, outcome: Ok(payload) });
    }

    #[test]
    fn every_cut_of_an_answer_is_an_error() {
        let bytes = answer(&header(3), b"ab", b"xyz");
        for end in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..end]);
            assert!(Answer::decode(cut).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn bytes_that_are_not_announced_are_an_error() {
        for (announced, cells) in [(3, &b"wxyz"[..]), (0, b"x")] {
            let bytes = answer(&header(announced), b"ab", cells);
            assert!(Answer::decode(bytes.into()).is_err(), "{announced}");
        }
    }

    #[test]
    fn answer_to_no_call_is_an_error() {
        let bytes = answer(&ResponseHeader::default(), b"", b"");
        assert!(matches!(Answer::decode(bytes.into()), Err(WireError::Malformed(_))));
    }

    #[test]
    fn other_protocols_are_no_answers() {
        for begins in [b"HTTP", b"SSH-", b"\x15\x03\x01\x00", b"\0\0\0\0"] {
            assert!(answer_length(*begins).is_err(), "{begins:?}");
        }
        assert_eq!(answer_length([0, 1, 0, 0]), Ok(65_536));
    }
}
