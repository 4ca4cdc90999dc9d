//! A store with rows, a service over it, and an HTTP client that sees every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use attribution::facts::canonical;
use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Fact, Pid, Purpose, SpreadId, Touch, TouchKind,
};
use attribution::worker::{Batch, Worker};
use config::{Config, SECRET_CHARS, Token, TokenApps, TokenDigest};
use jiff::Timestamp;
use store::embedded::Embedded;
use store::reader::Reader;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::{Access, ExportState};

/// 2026-03-10T00:00:00Z.
pub const DAY: u64 = 1_773_100_800_000;
pub const MINUTE: u64 = 60_000;
/// Everything that Kafka received before this event time is in the store.
pub const COMPLETE_UNTIL: u64 = DAY + 1;

/// All rows of the day.
pub const EVENTS: &str = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10";

const SETTINGS: &str = r#"
    [store]
    retention = "off"
    partitions = 4
    [[apps]]
    pid = 2
    key = "app y"
    name = "Y"
    [[apps]]
    pid = 1
    key = "app-x"
    name = "App X"
    [[channels]]
    id = "tou,tiao"
    [[campaigns]]
    spreadid = 7
    pid = 1
    channel = "tou,tiao"
    name = 'Say "hi"'
"#;

pub fn settings(dir: &Path) -> Config {
    let mut config = config::parse(SETTINGS).unwrap();
    config.store.path = dir.join("store");
    config
}

pub fn at(millis: u64) -> EventTime {
    EventTime::default().plus(millis)
}

pub fn ids(oaid: &str) -> Vec<(Box<str>, Box<str>)> {
    vec![("oaid".into(), oaid.into())]
}

pub fn click(spreadid: u32, click_id: &str, oaid: &str, time: u64) -> Fact {
    Fact::Touch(Box::new(Touch {
        pid: Pid(1),
        id: "".into(),
        click_id: click_id.into(),
        kind: TouchKind::Click,
        purpose: Purpose::Ua,
        spreadid: SpreadId(spreadid),
        time: at(time),
        lookback_ms: None,
        ids: ids(oaid),
        device: Device::default(),
        site: "".into(),
        params: vec![],
    }))
}

pub fn activation(id: &str, oaid: &str, time: u64) -> Box<Activation> {
    Box::new(Activation {
        pid: Pid(1),
        id: id.into(),
        time: at(time),
        install_begin_time: None,
        click_id: "".into(),
        ids: ids(oaid),
        device: Device {
            ua: "Mozilla/5.0 (X, like \"Y\")".into(),
            os: "android".into(),
            ..Device::default()
        },
        app_version: "1.2".into(),
        props: vec![],
    })
}

pub fn effect(id: &str, name: &str, oaid: &str, time: u64) -> Box<Effect> {
    Box::new(Effect {
        pid: Pid(1),
        id: id.into(),
        name: name.into(),
        time: at(time),
        ids: ids(oaid),
        device: Device::default(),
        app_version: "".into(),
        revenue: "9.99".into(),
        currency: "CNY".into(),
        props: vec![("level".into(), "3".into())],
    })
}

/// Attributes the facts into a store.
pub fn fill(config: &Config, facts: Vec<Fact>) -> Reader {
    let ledger = Embedded::open(&config.store, &config.policy).unwrap();
    let mut worker = Worker::new(ledger, Arc::clone(&config.policy));
    let mut facts = facts.into_iter();
    loop {
        let mut batch: Vec<_> = facts.by_ref().take(5_000).collect();
        if batch.is_empty() {
            return worker.ledger().reader();
        }
        for fact in &mut batch {
            let app = config.policy.app(fact.pid()).unwrap();
            canonical::identify(fact, &app.key);
        }
        worker.process(Batch { facts: batch, ..Batch::default() }).unwrap();
    }
}

/// Activations, one a second from the beginning of the day, each of another device.
pub fn many_activations(count: u64) -> Vec<Fact> {
    let activation = |n| {
        Fact::Activation(activation(&format!("a-{n}"), &format!("device-{n}"), DAY + 1_000 * n))
    };
    (0..count).map(activation).collect()
}

/// The token of an id; its secret is one repeated letter.
pub fn token(id: &str) -> String {
    format!("adt_{id}_{}", "x".repeat(SECRET_CHARS))
}

/// The settings of a token for one app, or for all.
pub fn entry(id: &str, pid: Option<u32>, expires: Option<Timestamp>) -> Token {
    let apps = pid.map_or(TokenApps::All, |pid| TokenApps::Listed([Pid(pid)].into()));
    Token { id: id.into(), digest: TokenDigest::of(&token(id)), apps, expires }
}

/// An expiry time in the past.
pub fn past() -> Option<Timestamp> {
    Some("2026-01-31T10:00:00Z".parse().unwrap())
}

/// A service on its own port.
pub struct Bed {
    pub address: SocketAddr,
    pub state: ExportState,
    pub config: Config,
    pub reader: Reader,
    pub runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
    _dir: TempDir,
}

impl Bed {
    pub fn new(facts: Vec<Fact>) -> Self {
        Self::with(facts, |_| {})
    }

    /// Starts a service with changed [`settings`].
    pub fn with(facts: Vec<Fact>, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = settings(dir.path());
        change(&mut config);
        let reader = fill(&config, facts);
        Self::over(dir, config, reader)
    }

    pub fn over(dir: TempDir, config: Config, reader: Reader) -> Self {
        let runtime = Runtime::new().unwrap();
        let access = Access::new(&config.tokens, config.downloads_per_token_max);
        let state = ExportState::new(
            reader.clone(),
            Arc::clone(&config.policy),
            access,
            Arc::new(|| Some(at(COMPLETE_UNTIL))),
        );
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        let served = runtime.spawn(crate::serve(listener, state.clone(), shutdown));
        Self {
            address,
            state,
            config,
            reader,
            runtime,
            stop: Some(stop),
            served: Some(served),
            _dir: dir,
        }
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1"))
    }

    /// Reads the page at this URL and all following ones.
    pub fn pages(&self, target: &str) -> Vec<Answer> {
        let mut pages = vec![self.get(target)];
        while let Some(next) = pages.last().and_then(Answer::next_page) {
            let page = self.get(next);
            pages.push(page);
        }
        pages
    }

    pub fn send(&self, request_line: &str) -> Answer {
        self.send_with(request_line, &[])
    }

    pub fn send_with(&self, request_line: &str, headers: &[&str]) -> Answer {
        self.send_body(request_line, headers, b"")
    }

    /// Like [`Bed::send_with`], with a body.
    pub fn send_body(&self, request_line: &str, headers: &[&str], body: &[u8]) -> Answer {
        ask(self.address, &[&[request_line], headers].concat().join("\r\n"), body)
    }

    /// Sends a request without reading the response.
    pub fn open(&self, head: &str) -> TcpStream {
        open(self.address, head)
    }

    /// Starts the shutdown of the service.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the service has stopped.
    pub fn join(&mut self) {
        let served = self.served.take().unwrap();
        self.runtime.block_on(served).unwrap();
    }
}

fn open(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{head}\r\nHost: adtrail\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

pub fn ask(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let mut stream = open(address, head);
    // The server does not read a refused body to the end.
    let _ = stream.write_all(body);
    let mut bytes = Vec::new();
    // An aborted response may end in a reset; the bytes before it count.
    let _ = stream.read_to_end(&mut bytes);
    Answer::parse(&bytes)
}

/// A response, and whether it was complete.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// Set if a chunked body had its end mark.
    pub is_ended: bool,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Self {
        let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: vec![], trailers: vec![], is_ended: false };
        let rest = &bytes[head_end + 4..];
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.read_chunks(rest);
        } else {
            answer.body = rest.to_vec();
        }
        answer
    }

    fn read_chunks(&mut self, mut rest: &[u8]) {
        while let Some(line_end) = rest.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&rest[..line_end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            rest = &rest[line_end + 2..];
            if size == 0 {
                let rest = std::str::from_utf8(rest).unwrap();
                self.is_ended = rest.ends_with("\r\n");
                let trailers = rest.lines().filter_map(|line| line.split_once(": "));
                self.trailers
                    .extend(trailers.map(|(name, value)| (name.to_lowercase(), value.to_owned())));
                return;
            }
            let chunk = rest.get(..size).unwrap_or(rest);
            self.body.extend_from_slice(chunk);
            rest = rest.get(size + 2..).unwrap_or_default();
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The URL of the next page.
    pub fn next_page(&self) -> Option<&str> {
        Some(self.header("link")?.strip_prefix('<')?.strip_suffix(">; rel=\"next\"").unwrap())
    }

    /// The cursor of the next page.
    pub fn cursor(&self) -> &str {
        self.next_page().unwrap().split_once("after=").unwrap().1
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
