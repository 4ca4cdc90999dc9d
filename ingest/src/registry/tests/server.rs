//! A scripted registry.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

pub enum Reply {
    Status(u16, String),
    /// Status 302 to this location.
    Redirect(String),
    /// `{"schema":"` and then this number of bytes, without a content length.
    Huge(usize),
}

pub fn ok(body: impl ToString) -> Reply {
    Reply::Status(200, body.to_string())
}

/// Replies with a schema without references.
pub fn schema(text: &str) -> Reply {
    ok(serde_json::json!({ "schema": text }))
}

pub fn unknown() -> Reply {
    Reply::Status(404, r#"{"error_code":40403,"message":"Schema not found"}"#.into())
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// Stops when dropped, and closes its connections.
pub struct Server {
    port: u16,
    state: Arc<State>,
    accepting: Option<thread::JoinHandle<()>>,
}

struct State {
    script: Mutex<Arc<Script>>,
    requests: Mutex<Vec<Request>>,
    is_stopped: AtomicBool,
    in_flight: AtomicUsize,
    in_flight_max: AtomicUsize,
}

impl Server {
    pub fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            script: Mutex::new(Arc::new(script)),
            requests: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            in_flight_max: AtomicUsize::new(0),
        });
        let shared = state.clone();
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = shared.clone();
                let stream = stream.unwrap();
                // Otherwise a reply in several writes waits for the client's acknowledgement.
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { port, state, accepting: Some(accepting) }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Changes the script, from the next request on.
    pub fn set(&self, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        *self.state.script.lock().unwrap() = Arc::new(script);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.path).collect()
    }

    /// Returns the maximum number of concurrent requests.
    pub fn in_flight_max(&self) -> usize {
        self.state.in_flight_max.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.accepting.take().unwrap().join().unwrap();
    }
}

impl State {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.in_flight_max.fetch_max(in_flight, Ordering::SeqCst);
            self.requests.lock().unwrap().push(request.clone());
            let script = self.script.lock().unwrap().clone();
            let reply = script(&request);
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            if write(stream, reply).is_err() {
                return;
            }
        }
    }
}

fn write(mut stream: &TcpStream, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Status(status, body) => write!(
            stream,
            "HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        Reply::Redirect(location) => write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        ),
        Reply::Huge(bytes) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"schema\":\"")?;
            let chunk = [b'x'; 1 << 16];
            for _ in 0..bytes / chunk.len() {
                stream.write_all(&chunk)?;
            }
            Err(std::io::ErrorKind::ConnectionAborted.into())
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    });
    Some(Request { path, headers: headers.collect() })
}
