//! Asks the service's own listeners, as a user's curl does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

const PATIENCE: Duration = Duration::from_secs(30);

/// The body of an answer that is 200. HTTP/1.0, so that the body comes as it is and ends with
/// the connection; whether it came whole is for the caller to see.
pub fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let answer = exchange(address, path).with_context(|| format!("http://{address}{path}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status_line = head.lines().next().unwrap_or_default();
    if status_line.split(' ').nth(1) != Some("200") {
        bail!("http://{address}{path}: {status_line}: {body}");
    }
    Ok(body.to_owned())
}

fn exchange(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    String::from_utf8(answer).context("the answer is not UTF-8")
}
