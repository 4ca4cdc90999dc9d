//! An ad network and a server of the advertiser, in this process, which get callbacks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use anyhow::Context;

const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Every so many requests one fails, as happens in practice.
const REQUESTS_PER_FAILURE: u64 = 50;
/// The longest request that is read.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// 24 bytes. It protects nothing, because the receiver is the demo itself.
const WEBHOOK_SECRET: &str = "whsec_ZGVtby1kZW1vLWRlbW8tZGVtby1kZW1v";

pub struct Network(SocketAddr);

impl Network {
    /// Starts the threads that answer, which end with the process.
    pub fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.context("there is no free port for the network of the demo")?;
        let address = listener.local_addr().context("the network of the demo has no address")?;
        Builder::new()
            .name("network".into())
            .spawn(move || answer_all(&listener))
            .context("the thread of the demo's network cannot be started")?;
        Ok(Self(address))
    }

    /// Returns the settings of its endpoints: the network gets what its channel has brought, the webhook all
    /// activations.
    pub fn settings(&self) -> String {
        let port = self.0.port();
        format!(
            "[callbacks]\nsettle = \"5s\"\nallow_loopback = [\"localhost\"]\n\n\
             [[callbacks.endpoint]]\nname = \"toutiao\"\npreset = \"oceanengine\"\n\
             url = \"http://localhost:{port}/conversion\"\nchannels = [\"toutiao\"]\n\
             requests_per_second_max = 1000\n\n\
             [[callbacks.endpoint]]\nname = \"warehouse\"\npreset = \"webhook\"\n\
             url = \"http://localhost:{port}/hook\"\n\
             kinds = [\"activation.attributed\", \"activation.changed\"]\n\
             requests_per_second_max = 1000\ncredentials.secret = \"{WEBHOOK_SECRET}\"\n\n"
        )
    }
}

fn answer_all(listener: &TcpListener) {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    for stream in listener.incoming().flatten() {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = number.is_multiple_of(REQUESTS_PER_FAILURE);
        // A failure to answer is one of the client, which tries again.
        let answer = Builder::new().name("network".into()).spawn(move || answer(stream, fails));
        drop(answer);
    }
}

/// Reads one request, answers it and closes the connection.
fn answer(stream: TcpStream, fails: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut reader = BufReader::new((&stream).take(REQUEST_BYTES_MAX));
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    let (status, body) = match fails {
        true => ("503 Service Unavailable", "busy"),
        false => ("200 OK", "{\"code\":0,\"message\":\"success\"}"),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    (&stream).write_all(format!("{head}{body}").as_bytes())
}
