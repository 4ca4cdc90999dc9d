//! Asks the service's own listeners, as a user's curl does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

const PATIENCE: Duration = Duration::from_secs(30);

/// The whole body of an answer that is 200.
pub fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let answer = exchange(address, path).with_context(|| format!("http://{address}{path}"))?;
    let (head, body) = read(&answer)
        .with_context(|| format!("http://{address}{path}: the answer is not complete"))?;
    let status_line = head.lines().next().unwrap_or_default();
    let is_good = status_line.split(' ').nth(1) == Some("200");
    ensure!(is_good, "http://{address}{path}: {status_line}: {body}");
    Ok(body)
}

fn exchange(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Head and body as text; `None` if the answer was cut short.
fn read(answer: &[u8]) -> Option<(String, String)> {
    let (head, rest) = split(answer, b"\r\n\r\n")?;
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

fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<&str>) {
        assert_eq!(read(answer.as_bytes()).map(|(_, body)| body).as_deref(), expected);
    }

    #[test]
    fn an_answer_cut_short_is_none() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", Some("ab"));
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\nContent-Le", None);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("{chunked}1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n"), Some("a0123456789"));
        check(&format!("{chunked}2\r\n春"), None);
        check(&format!("{chunked}2\r\nab\r\n"), None);
        check(&format!("{chunked}2\r\n\u{6625}\r\n"), None);
        // A character can be cut by the end of a chunk.
        let parts = [chunked.as_bytes(), b"2\r\n\xe6\x98\r\n1\r\n\xa5\r\n0\r\n\r\n"].concat();
        assert_eq!(read(&parts).map(|(_, body)| body).as_deref(), Some("春"));
    }
}
