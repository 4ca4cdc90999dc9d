//! A minimal HTTP client for the service's listeners.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the address by which this machine reaches a listener.
pub fn local(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listener.port())
}

/// Returns the whole body of a response with status 200.
pub fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    request("GET", address, path)
}

/// Like [`get`], for a request that changes something.
pub fn put(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    request("PUT", address, path)
}

fn request(method: &str, address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let (status, body) = send(method, address, path)?;
    ensure!(status == 200, "http://{address}{path}: {status}: {}", body.trim_end());
    Ok(body)
}

/// Sends a request without a body. Returns the status and the whole body of the response.
pub fn send(method: &str, address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let url = || format!("http://{address}{path}");
    let response = exchange(method, address, path).with_context(url)?;
    let truncated = || format!("{}: the response is truncated", url());
    let (head, body) = parse(&response).with_context(truncated)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("{}: not an HTTP response", url()))?, body))
}

fn exchange(method: &str, address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(response)
}

/// Returns head and body as text; `None` if the response is truncated.
fn parse(response: &[u8]) -> Option<(String, String)> {
    let (head, rest) = split(response, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(head).into_owned();
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let body = match field("content-length") {
        Some(length) => rest.get(..length.parse().ok()?)?.to_vec(),
        None => dechunk(rest)?,
    };
    Some((head, String::from_utf8(body).ok()?))
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(rest.len());
    loop {
        let (size, chunks) = split(rest, b"\r\n")?;
        let size_bytes = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size_bytes == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunks.get(..size_bytes)?);
        rest = chunks.get(size_bytes..)?.strip_prefix(b"\r\n")?;
    }
}

fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_loopback() {
        let check = |listener: &str, expected: &str| {
            assert_eq!(local(listener.parse().unwrap()).to_string(), expected);
        };
        check("0.0.0.0:8081", "127.0.0.1:8081");
        check("[::]:8081", "[::1]:8081");
        check("192.0.2.1:8081", "192.0.2.1:8081");
    }

    #[track_caller]
    fn check(response: &str, expected: Option<&str>) {
        assert_eq!(parse(response.as_bytes()).map(|(_, body)| body).as_deref(), expected);
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", Some("ab"));
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\nContent-Le", None);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("{chunked}1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n"), Some("a0123456789"));
        check(&format!("{chunked}2\r\n春"), None);
        check(&format!("{chunked}2\r\nab\r\n"), None);
        check(&format!("{chunked}2\r\n\u{6625}\r\n"), None);
        // A character may be split between two chunks.
        let parts = [chunked.as_bytes(), b"2\r\n\xe6\x98\r\n1\r\n\xa5\r\n0\r\n\r\n"].concat();
        assert_eq!(parse(&parts).map(|(_, body)| body).as_deref(), Some("春"));
    }
}
