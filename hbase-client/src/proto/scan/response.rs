//! The response of a scan. Its decoder is written by hand: a frame can contain more one-byte numbers than fit into
//! memory once decoded.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{
    self, DecodeContext, WireType, bool, check_wire_type, decode_varint, skip_field, uint32, uint64,
};
use prost::{DecodeError, Message};

use crate::wire::cell::CELL_BYTES_MIN;
use crate::wire::frame::RESPONSE_BYTES_MAX;

/// Maximum number of results in one response: each has at least one cell.
const RESULTS_MAX: usize = RESPONSE_BYTES_MAX / CELL_BYTES_MIN;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScanResponse {
    /// Tag 1: the number of cells of each result in the cell block.
    pub cells_per_result: Vec<u32>,
    /// Tag 2.
    pub scanner_id: Option<u64>,
    /// Tag 3. Still true at the end of a region; false at the end of the scan.
    pub more_results: Option<bool>,
    /// Tag 7: for each result, whether more cells of its row may follow.
    pub partial_flag_per_result: Vec<bool>,
    /// Tag 8.
    pub more_results_in_region: Option<bool>,
    /// Tag 9. Nothing was found in time, and the scanner continues.
    pub heartbeat_message: Option<bool>,
    /// Why the response is invalid, if only this decoder detects it. Not a field of the message.
    pub malformed: Option<&'static str>,
}

impl Message for ScanResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        uint32::encode_repeated(1, &self.cells_per_result, buf);
        self.scanner_id.iter().for_each(|id| uint64::encode(2, id, buf));
        self.more_results.iter().for_each(|more| bool::encode(3, more, buf));
        bool::encode_repeated(7, &self.partial_flag_per_result, buf);
        self.more_results_in_region.iter().for_each(|more| bool::encode(8, more, buf));
        self.heartbeat_message.iter().for_each(|heartbeat| bool::encode(9, heartbeat, buf));
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => {
                let counts = &mut self.cells_per_result;
                let malformed = numbers(counts, |count| count as u32, wire_type, buf, context)?;
                self.malformed = self.malformed.or(malformed);
                Ok(())
            }
            2 => uint64::merge(wire_type, self.scanner_id.get_or_insert_default(), buf, context),
            3 => bool::merge(wire_type, self.more_results.get_or_insert_default(), buf, context),
            5 => {
                // Sent only on connections without a codec.
                self.malformed = Some("the response has results outside of the cell block");
                skip_field(wire_type, tag, buf, context)
            }
            7 => {
                let flags = &mut self.partial_flag_per_result;
                let malformed = numbers(flags, |flag| flag != 0, wire_type, buf, context)?;
                self.malformed = self.malformed.or(malformed);
                Ok(())
            }
            8 => {
                let more = self.more_results_in_region.get_or_insert_default();
                bool::merge(wire_type, more, buf, context)
            }
            9 => {
                let heartbeat = self.heartbeat_message.get_or_insert_default();
                bool::merge(wire_type, heartbeat, buf, context)
            }
            _ => skip_field(wire_type, tag, buf, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let flag =
            |tag, flag: &Option<bool>| flag.as_ref().map_or(0, |flag| bool::encoded_len(tag, flag));
        uint32::encoded_len_repeated(1, &self.cells_per_result)
            + self.scanner_id.as_ref().map_or(0, |id| uint64::encoded_len(2, id))
            + flag(3, &self.more_results)
            + bool::encoded_len_repeated(7, &self.partial_flag_per_result)
            + flag(8, &self.more_results_in_region)
            + flag(9, &self.heartbeat_message)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Decodes one number, or a packed list: decoders must accept both. Returns an error text if there are too many.
fn numbers<T>(
    list: &mut Vec<T>,
    read: impl Fn(u64) -> T,
    wire_type: WireType,
    buf: &mut impl Buf,
    context: DecodeContext,
) -> Result<Option<&'static str>, DecodeError> {
    const TOO_MANY: Option<&str> = Some("the response has more results than fit into a frame");
    let available = RESULTS_MAX - list.len();
    if wire_type != WireType::LengthDelimited {
        check_wire_type(WireType::Varint, wire_type)?;
        let number = decode_varint(buf)?;
        if available == 0 {
            return Ok(TOO_MANY);
        }
        list.push(read(number));
        return Ok(None);
    }
    let mut packed = Bytes::new();
    encoding::bytes::merge(wire_type, &mut packed, buf, context)?;
    // Each number takes at least one byte.
    if packed.len() > available {
        return Ok(TOO_MANY);
    }
    while !packed.is_empty() {
        list.push(read(decode_varint(&mut packed)?));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;

    fn packed(tag: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![tag << 3 | 2];
        encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn response_survives_a_round_trip() {
        let response = ScanResponse {
            cells_per_result: vec![1, 0, 300, u32::MAX],
            scanner_id: Some(u64::MAX),
            more_results: Some(true),
            partial_flag_per_result: vec![false, true],
            more_results_in_region: Some(false),
            heartbeat_message: Some(true),
            malformed: None,
        };
        for response in [response, ScanResponse::default()] {
            let written = response.encode_to_vec();
            assert_eq!(written.len(), response.encoded_len());
            assert_eq!(ScanResponse::decode(&written[..]), Ok(response));
        }
    }

    #[test]
    fn packed_and_single_numbers_are_decoded() {
        let bytes = [packed(1, &[1, 0xac, 2]), vec![8, 7], packed(7, &[1, 0]), packed(1, &[])];
        // Unknown fields are skipped.
        let read = ScanResponse::decode(&[bytes.concat(), packed(12, b"later")].concat()[..]);
        let read = read.unwrap();
        assert_eq!(read.cells_per_result, [1, 300, 7]);
        assert_eq!(read.partial_flag_per_result, [true, false]);
        for cut in [&[10, 2, 1][..], &[10, 1, 0x80, 1], &[9, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(ScanResponse::decode(cut).is_err(), "{cut:?}");
        }
    }

    #[test]
    fn more_results_than_fit_into_a_frame_are_not_stored() {
        let read = |bytes: &[u8]| ScanResponse::decode(bytes).unwrap();
        for tag in [1, 7] {
            let all = packed(tag, &vec![0; RESULTS_MAX]);
            assert_eq!(read(&all).malformed, None);
            for more in [packed(tag, &[0]), vec![tag << 3, 0]] {
                let response = read(&[&all[..], &more].concat());
                assert!(response.malformed.is_some());
                let stored =
                    response.cells_per_result.len() + response.partial_flag_per_result.len();
                assert_eq!(stored, RESULTS_MAX);
            }
            let response = read(&packed(tag, &vec![0; RESULTS_MAX + 1]));
            assert!(response.malformed.is_some());
            assert_eq!(response.cells_per_result.len() + response.partial_flag_per_result.len(), 0);
        }
        // Results as messages are not stored either: they take more memory than bytes on the wire.
        assert!(read(&packed(5, &[])).malformed.is_some());
    }
}
