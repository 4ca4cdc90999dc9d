//! A server that records requests and answers by script, on a loopback address.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// A status with a body.
    Reply(u16, String),
    /// The same, with a header.
    With(u16, &'static str, String),
    /// A status, with the headers and all else of the request as the body.
    Echo(u16),
    /// Closes the connection without a response.
    HangUp,
    /// Does not answer until [`Mock::end_silence`].
    Silence,
    /// A body that begins so, and never ends.
    Unfinished(String),
}

/// A request as received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

#[derive(Default)]
struct Shared {
    answer: Option<Answer>,
    received: Vec<Received>,
    /// How many requests have arrived.
    arrived: watch::Sender<usize>,
    /// Connections that are kept open without a response, or without the end of one.
    silent: Vec<TcpStream>,
}

pub(super) struct Mock {
    pub port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl Mock {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = serving.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { port, shared }
    }

    /// Answers all further requests so.
    pub fn answers(&self, answer: Answer) {
        self.shared.lock().answer = Some(answer);
    }

    /// Returns the requests since the last call.
    pub fn received(&self) -> Vec<Received> {
        std::mem::take(&mut self.shared.lock().received)
    }

    /// Waits until this many requests have arrived since the start.
    pub async fn await_requests(&self, count: usize) {
        let mut arrived = self.shared.lock().arrived.subscribe();
        arrived.wait_for(|arrived| *arrived >= count).await.unwrap();
    }

    /// Answers the requests that have no response yet.
    pub fn end_silence(&self, status: u16, body: &str) {
        for mut stream in std::mem::take(&mut self.shared.lock().silent) {
            respond(&mut stream, status, "", body, body.len());
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.port)
    }
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// Returns the signatures, wherever networks expect them.
    pub fn signatures(&self) -> Vec<String> {
        let headers =
            [("signature", ""), ("webhook-signature", "v1,"), ("authorization", "Digest ")];
        let of_headers = headers.into_iter().filter_map(|(name, prefix)| {
            let value = self.header(name)?.strip_prefix(prefix)?;
            // The digest follows its time.
            let value = value.rsplit("response=").next()?;
            Some(value.trim_matches(['"', '=']).to_owned())
        });
        of_headers.chain(self.parameter("sign")).collect()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns a parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let url = reqwest::Url::parse(&format!("http://localhost{}", self.path)).unwrap();
        let found = url.query_pairs().find(|(known, _)| known == name);
        found.map(|(_, value)| value.into_owned())
    }
}

/// Serves one request; the client opens another connection for the next one.
fn serve(stream: TcpStream, shared: &Mutex<Shared>) {
    let mut reader = BufReader::new(stream);
    let Some(received) = read(&mut reader) else { return };
    let mut stream = reader.into_inner();
    let mut shared = shared.lock();
    let echo = format!("{:?} {} {}", received.headers, received.path, received.body);
    shared.received.push(received);
    shared.arrived.send_modify(|arrived| *arrived += 1);
    match shared.answer.clone().unwrap_or(Answer::Reply(200, String::new())) {
        Answer::Reply(status, body) => respond(&mut stream, status, "", &body, body.len()),
        Answer::With(status, header, body) => {
            respond(&mut stream, status, header, &body, body.len());
        }
        Answer::Echo(status) => respond(&mut stream, status, "", &echo, echo.len()),
        Answer::HangUp => {}
        Answer::Silence => shared.silent.push(stream),
        Answer::Unfinished(body) => {
            respond(&mut stream, 200, "", &body, body.len() + 1);
            shared.silent.push(stream);
        }
    }
}

/// Sends a response whose body is said to have this length.
fn respond(stream: &mut TcpStream, status: u16, header: &str, body: &str, length: usize) {
    let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let head = format!(
        "HTTP/1.1 {status} x\r\n{header}Connection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // The client may have gone.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received { method, path, headers, body: String::from_utf8(body).unwrap() })
}
