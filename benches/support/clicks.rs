//! Clicks of Ocean Engine for the bench of the collector: as many as a server answers, by wrk, or at a constant rate.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::AddAssign;
use std::process::Command;
use std::thread::{self, available_parallelism, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use testbed::{DEADLINE, http, run_ok};

use crate::support::{APP_KEY, cpu_seconds, memory_mib};

/// Enough to keep all processors busy although each click waits for Kafka.
pub const CONNECTIONS: u32 = 256;

/// All connections begin at once, so that the first clicks at a constant rate wait for each other.
const SETTLING: Duration = Duration::from_secs(5);

/// Loaded by wrk. Its arguments are a path with `@` in place of the request id, and the name of the run.
const SCRIPT: &str = r#"
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("thread_number", threads)
end

function init(args)
  before, after = wrk.format("GET", args[1]):match("^(.-)@(.*)$")
  before = before .. args[2] .. "-" .. thread_number .. "-"
  clicks = 0
end

function request()
  clicks = clicks + 1
  return before .. clicks .. after
end

function done(summary)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write
  io.write(string.format("totals %d %d %d %d\n", summary.requests, errors.status, lost, summary.duration))
end
"#;

/// The parameters of a click as Ocean Engine reports it, with `@` as its request id, without its time.
const PARAMETERS: &str = "spreadid=7&request_id=@&advertiser_id=1780000000000001&\
    project_id=7380000000000000002&project_name=%E6%98%A5%E5%AD%A3&\
    promotion_id=7380000000000000003&promotion_name=%E6%98%A5%E5%AD%A3%201&\
    aid=1795000000000004&cid=1795000000000005&csite=40001&union_site=900000006&os=0&\
    imei=0c2bd03c39f19845bf54ea0abafae70e&oaid=97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841&\
    oaid_md5=87f8274c36eb73fabcbf143a10eca6a4&androidid=873541edf36da9170af47d5b69e82193&\
    ip=203.0.113.9&ua=Mozilla%2F5.0%20%28Linux%3B%20Android%2014%3B%20V29%29%20\
    AppleWebKit%2F537.36%20%28KHTML%2C%20like%20Gecko%29%20Chrome%2F126.0.6478.122%20\
    Mobile%20Safari%2F537.36&model=V29&\
    callback=AbC%2BdEf0123456789AbC%2BdEf0123456789AbC%2BdEf0123456789AbC%2BdEf0123456789%3D%3D";

/// Returns the path of a click of now, with `@` as its request id.
fn click_path() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    format!("/click/{APP_KEY}/oceanengine?{PARAMETERS}&ts={}", now.as_millis())
}

/// One of the two processes that are measured.
pub struct Server {
    pub name: &'static str,
    pub address: String,
    pub pid: u32,
}

/// How the clicks were answered.
#[derive(Debug, Default, Clone, Copy)]
pub struct Answers {
    /// Answered with 200.
    pub acknowledged: u64,
    /// Answered with another status.
    pub refused: u64,
    /// Sent, but not answered before the connection ended.
    pub unanswered: u64,
}

impl Answers {
    /// Checks the number of clicks in the topic: all that were acknowledged, and nothing that was not sent.
    pub fn check(self, written: u64) {
        let Self { acknowledged, refused, unanswered } = self;
        println!(
            "clicks: {acknowledged} acknowledged, {refused} refused, at most {unanswered} not answered; {written} in \
             the topic"
        );
        let expected = acknowledged..=acknowledged + refused + unanswered;
        assert!(expected.contains(&written), "the topic has {written} clicks, not {expected:?}");
    }
}

impl AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
    }
}

/// What wrk and a server have done in a turn.
pub struct Turn {
    pub answers: Answers,
    wall: f64,
    cpu: f64,
}

impl Turn {
    pub fn per_second(&self) -> f64 {
        self.answers.acknowledged as f64 / self.wall
    }

    pub fn per_cpu_second(&self) -> f64 {
        self.answers.acknowledged as f64 / self.cpu
    }

    pub fn print(&self, server: &Server) {
        println!(
            "{:<16} {:>9.0} {:>8.2} {:>18.0} {:>8} {:>8}",
            server.name,
            self.per_second(),
            self.cpu,
            self.per_cpu_second(),
            self.answers.refused,
            memory_mib(server.pid).0
        );
    }
}

/// The load on a server: clicks with different ids.
pub struct Load {
    /// The path of a click, with `@` in place of its request id.
    pub path: String,
    /// Has the script for wrk.
    folder: TempDir,
}

impl Load {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("the folder is created");
        fs::write(folder.path().join("click.lua"), SCRIPT).expect("the script is written");
        Self { path: click_path(), folder }
    }

    /// Checks that a server accepts the clicks.
    pub fn probe(&self, server: &Server) {
        let reply = http::get(&server.address, &self.path.replace('@', "probe"));
        let reply = reply.expect("the server responds");
        assert_eq!(reply.status, 200, "{}: {reply:?}", server.name);
    }

    /// Runs wrk on the same processors.
    pub fn turn(&self, server: &Server, run: &str, lasts: Duration) -> Turn {
        let threads = available_parallelism().map_or(1, usize::from).min(CONNECTIONS as usize);
        let mut wrk = Command::new("wrk");
        wrk.arg(format!("--threads={threads}"))
            .arg(format!("--connections={CONNECTIONS}"))
            .arg(format!("--duration={}s", lasts.as_secs()))
            .arg("--script")
            .arg(self.folder.path().join("click.lua"))
            .arg(format!("http://{}", server.address))
            .args(["--", &self.path, run]);
        let before = cpu_seconds(server.pid);
        let output = run_ok(&mut wrk, b"");
        let cpu = cpu_seconds(server.pid) - before;
        let output = String::from_utf8(output).expect("valid UTF-8");
        let totals = output.lines().find_map(|line| line.strip_prefix("totals "));
        let totals = totals.unwrap_or_else(|| panic!("wrk prints no totals:\n{output}"));
        let numbers: Vec<u64> =
            totals.split(' ').map(|word| word.parse().expect("totals are numbers")).collect();
        let [requests, refused, lost, micros] = numbers[..] else { panic!("totals: {totals}") };
        // At its end, wrk closes all connections without waiting.
        let unanswered = lost + u64::from(CONNECTIONS);
        let answers = Answers { acknowledged: requests - refused, refused, unanswered };
        Turn { answers, wall: micros as f64 / 1e6, cpu }
    }

    /// Sends clicks at a constant rate, and waits for all answers. Prints how long those took that were due after
    /// [`SETTLING`]. The p99 of the median second leaves out moments at which a shared machine stands still.
    pub fn at_rate(&self, server: &Server, rate: f64, lasts: Duration) -> Answers {
        let connect = |_| Client::connect(&server.address);
        let clients: Vec<Client> = (0..CONNECTIONS).map(connect).collect();
        let (started, cpu) = (Instant::now(), cpu_seconds(server.pid));
        let outcomes = thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS)
                .zip(clients)
                .map(|(number, client)| {
                    let first = f64::from(number) / rate;
                    let interval = f64::from(CONNECTIONS) / rate;
                    let due = (0_u32..).map(move |click| {
                        Duration::from_secs_f64(first + f64::from(click) * interval)
                    });
                    let due = due.take_while(move |due| *due < lasts);
                    let id = format!("half-rate-{number}");
                    scope.spawn(move || client.click(&self.path, &id, started, due))
                })
                .collect();
            let join = threads.into_iter().map(|thread| thread.join());
            join.map(|clicks| clicks.expect("the client does not panic")).collect::<Vec<Clicks>>()
        });
        let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds(server.pid) - cpu);
        let refused: u64 = outcomes.iter().map(|clicks| clicks.refused).sum();
        let clicks: u64 = outcomes.iter().map(|clicks| clicks.times.len() as u64).sum();
        let warm =
            outcomes.iter().flat_map(|clicks| &clicks.times).filter(|(due, _)| *due >= SETTLING);
        let mut seconds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (due, ms) in warm {
            seconds.entry(due.as_secs()).or_default().push(*ms);
        }
        let p99s = seconds.values().map(|times| percentile(times.clone(), 99));
        let median_second = percentile(p99s.collect(), 50);
        let times: Vec<f64> = seconds.into_values().flatten().collect();
        let at = |percent| percentile(times.clone(), percent);
        println!(
            "{}: {:.0} clicks/s, {cpu:.1} CPU-s, {:.0} clicks/CPU-second; p50 {:.2} ms, p99 {:.2}, of the median second {median_second:.2}, maximum {:.1}",
            server.name,
            clicks as f64 / wall,
            clicks as f64 / cpu,
            at(50),
            at(99),
            at(100)
        );
        Answers { acknowledged: clicks - refused, refused, unanswered: 0 }
    }
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// The answers that a client has got.
#[derive(Default)]
struct Clicks {
    /// When each was due, and the milliseconds until its answer.
    times: Vec<(Duration, f64)>,
    refused: u64,
}

/// A connection that is kept alive.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts connections");
        stream.set_nodelay(true).expect("the socket has the option");
        stream.set_read_timeout(Some(DEADLINE)).expect("the socket has the option");
        Self(BufReader::new(stream))
    }

    /// Sends clicks when they are due after `started`, one after the other. If an answer takes so long that the next
    /// click is late, its time counts from when it was due.
    fn click(
        mut self,
        path: &str,
        id: &str,
        started: Instant,
        due: impl Iterator<Item = Duration>,
    ) -> Clicks {
        let mut clicks = Clicks::default();
        for (number, due) in due.enumerate() {
            sleep(due.saturating_sub(started.elapsed()));
            let path = path.replace('@', &format!("{id}-{number}"));
            if self.get(&path) != 200 {
                clicks.refused += 1;
            }
            let took = started.elapsed().saturating_sub(due);
            clicks.times.push((due, 1e3 * took.as_secs_f64()));
        }
        clicks
    }

    /// Returns the status of the response.
    fn get(&mut self, path: &str) -> u16 {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut length = None;
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
        }
        let mut body = vec![0; length.expect("the response has a length")];
        self.0.read_exact(&mut body).expect("the body is complete");
        status.expect("the response has a status")
    }

    /// Returns a line of the response's head.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server responds");
        assert!(line.ends_with('\n'), "the server has closed a connection");
        line.trim_end().to_owned()
    }
}
