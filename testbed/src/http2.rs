//! HTTP/2 frame by frame, for clients that send what no library would send.

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The window of a client that does not change it.
pub const DEFAULT_WINDOW: u32 = 65_535;

/// HPACK's one byte for `accept-charset` without a value, 46 bytes of a header list.
pub const FIELD: u8 = 0x80 | 15;

const HEAD_BYTES: usize = 9;
/// Maximum length of a frame, unless the receiver allows more.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// A received frame.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a RST_STREAM or GOAWAY frame.
    pub fn code(&self) -> u32 {
        let start = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[start..start + 4].try_into().expect("four bytes"))
    }
}

/// Returns the complete frames.
pub fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes(head[5..].try_into().expect("four bytes"));
        frames.push(Frame { kind: head[3], flags: head[4], stream, payload: payload.to_vec() });
        bytes = rest;
    }
    frames
}

/// Returns the bytes of all response bodies.
pub fn data(frames: &[Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The first bytes of a client that lets the server send this many bytes of each response.
pub fn preface(window: u32) -> Vec<u8> {
    let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &setting)].concat()
}

/// Lets the server send more bytes of a response; of all responses for stream 0.
pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A whole request without a body.
pub fn get(stream: u32, path: &str, authority: &str) -> Vec<u8> {
    headers(stream, END_STREAM, &fields("GET", path, authority))
}

/// The frames of a whole header block. `flags` may have [`END_STREAM`].
pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let parts = block.chunks(PAYLOAD_BYTES_MAX);
    let last = parts.len() - 1;
    let frame_of = |(index, part)| {
        let end = if index == last { END_HEADERS } else { 0 };
        if index == 0 {
            frame(HEADERS, flags | end, stream, part)
        } else {
            frame(CONTINUATION, end, stream, part)
        }
    };
    parts.enumerate().flat_map(frame_of).collect()
}

/// The fields of a request in HPACK.
pub fn fields(method: &str, path: &str, authority: &str) -> Vec<u8> {
    let method = if method == "POST" { 0x83 } else { 0x82 };
    let (path, authority) = (string(path), string(authority));
    [&[method, 0x86_u8][..], &[4], &path, &[1], &authority].concat()
}

/// A field in HPACK.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0_u8][..], &string(name), &string(value)].concat()
}

/// A text in HPACK: its length in a prefix of 7 bits and further bytes, then the text.
fn string(text: &str) -> Vec<u8> {
    const PREFIX_MAX: usize = 127;
    const MORE: usize = 128;
    let mut bytes = Vec::new();
    let mut length = text.len();
    if length >= PREFIX_MAX {
        bytes.push(PREFIX_MAX as u8);
        length -= PREFIX_MAX;
        while length >= MORE {
            bytes.push((length % MORE + MORE) as u8);
            length /= MORE;
        }
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
