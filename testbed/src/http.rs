//! A small HTTP/1.1 client that detects truncated responses and exposes trailers.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::DEADLINE;

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Trailers of a chunked body, with names in lower case.
    pub trailers: Vec<(String, String)>,
    /// True if the body was received completely.
    pub is_whole: bool,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        find(&self.trailers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a GET request to an address such as `127.0.0.1:8080`. Fails only if no response head is received.
pub fn get(address: &str, path: &str) -> io::Result<Reply> {
    request("GET", address, path, &[])
}

pub fn request(
    method: &str,
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<Reply> {
    send(method, address, path, headers, &[])
}

/// Like [`request`], with a body unless it is empty.
pub fn send(
    method: &str,
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    finish(begin(method, address, path, headers, body)?, Vec::new(), method == "HEAD")
}

/// Like [`send`], but returns after sending, so that the caller can read the response slowly.
pub fn begin(
    method: &str,
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if !body.is_empty() {
        headers += &format!("Content-Length: {}\r\n", body.len());
    }
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nTE: trailers\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    Ok(stream)
}

/// Reads the rest of a response, after these bytes.
pub fn finish(mut stream: TcpStream, mut bytes: Vec<u8>, is_head: bool) -> io::Result<Reply> {
    // After a connection reset, keep the bytes received before; `parse` detects that they are incomplete.
    if let Err(error) = stream.read_to_end(&mut bytes)
        && error.kind() != io::ErrorKind::ConnectionReset
    {
        return Err(error);
    }
    parse(&bytes, is_head).ok_or_else(|| {
        io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended inside the head")
    })
}

fn parse(bytes: &[u8], is_head: bool) -> Option<Reply> {
    let (head, rest) = split(bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(head);
    let (status_line, fields) = head.split_once("\r\n").unwrap_or((&head, ""));
    let status = status_line.split(' ').nth(1)?.parse().ok()?;
    let headers = parse_fields(fields);
    let is_chunked = find(&headers, "transfer-encoding") == Some("chunked");
    let length: Option<usize> =
        find(&headers, "content-length").and_then(|length| length.parse().ok());
    let (body, trailers, is_whole) = match length {
        _ if is_head => (Vec::new(), Vec::new(), true),
        _ if is_chunked => dechunk(rest),
        Some(length) => (rest.to_vec(), Vec::new(), rest.len() == length),
        // The body ends with the connection, so its length is unknown, unless the status has no body.
        None => (rest.to_vec(), Vec::new(), matches!(status, 204 | 304)),
    };
    Some(Reply { status, headers, body, trailers, is_whole })
}

fn dechunk(mut bytes: &[u8]) -> (Vec<u8>, Vec<(String, String)>, bool) {
    let mut body = Vec::new();
    while let Some((size, rest)) = split(bytes, b"\r\n") {
        let size = String::from_utf8_lossy(size);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk's size is hexadecimal");
        if size == 0 {
            // The trailers, if any, end with an empty line.
            let is_whole = rest.starts_with(b"\r\n") || rest.ends_with(b"\r\n\r\n");
            return (body, parse_fields(&String::from_utf8_lossy(rest)), is_whole);
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        bytes = rest.get(size + 2..).unwrap_or_default();
    }
    (body, Vec::new(), false)
}

fn parse_fields(text: &str) -> Vec<(String, String)> {
    text.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect()
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    fields.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
}

fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}
