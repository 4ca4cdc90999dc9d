//! Servers of networks on a loopback address: each path answers by script, and its requests are kept.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use testbed::eventually;

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// As text.
    pub body: String,
    pub bytes: Vec<u8>,
}

impl Request {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns a parameter of the query, as it is.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

#[derive(Default)]
struct Shared {
    received: Vec<Request>,
    /// Keyed by path.
    answers: BTreeMap<String, Answer>,
}

#[derive(Clone)]
struct Answer {
    status: u16,
    /// A line with its end; empty for none.
    header: String,
    body: String,
}

pub struct Network {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl Network {
    /// Starts a server that answers with status 404 until it has answers.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = serving.clone();
                // A client that is killed closes its connection.
                thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.port)
    }

    /// Sets the answer to all further requests of a path.
    pub fn answer(&self, path: &str, status: u16, body: &str) {
        self.answer_with(path, status, "", body);
    }

    /// The same, with a header.
    pub fn answer_with(&self, path: &str, status: u16, header: &str, body: &str) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let answer = Answer { status, header, body: body.to_owned() };
        shared.answers.insert(path.to_owned(), answer);
    }

    /// Returns all requests of a path, in the order in which they came.
    pub fn received(&self, path: &str) -> Vec<Request> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_path = |request: &&Request| path_of(request) == path;
        shared.received.iter().filter(is_of_path).cloned().collect()
    }

    /// Waits until a path has had at least this many requests, and returns them.
    #[track_caller]
    pub fn await_requests(&self, path: &str, count: usize) -> Vec<Request> {
        eventually(&format!("{count} requests of {path}"), || {
            let received = self.received(path);
            if received.len() >= count { Ok(received) } else { Err(format!("{received:?}")) }
        })
    }
}

fn path_of(request: &Request) -> &str {
    request.path.split('?').next().unwrap_or_default()
}

/// Serves one request, and closes the connection.
fn serve(stream: TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let request = read(&mut reader)?;
    let Answer { status, header, body } = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = shared.answers.get(path_of(&request)).cloned();
        shared.received.push(request);
        answer.unwrap_or(Answer { status: 404, header: String::new(), body: String::new() })
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{header}Connection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
    );
    reader.into_inner().write_all(format!("{head}{body}").as_bytes())
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Request> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).ok_or(io::ErrorKind::InvalidData)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut bytes = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut bytes)?;
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Request { method, path, headers, body, bytes })
}
