//! SIGTERM at the worst moments: adtrail shuts down cleanly, within its deadline, and reads no committed record again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testbed::adtrail::Adtrail;
use testbed::exports::Workload;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::traffic::{self, FROM, TO};
use testbed::{await_exit, eventually, from_env, http, kill};

/// `run.shutdown_deadline`, plus the time in which a slow machine detects the end of a process.
const DEADLINE: Duration = Duration::from_secs(30 + 5);
const BATCH_RECORDS: usize = 40;

static WORKLOAD: Workload = Workload::new(|| {
    // Each record is produced twice on average, so there are at least some 300 for every stop.
    let count = 2_500.max(from_env("ADTRAIL_STOPS", 0) * 150);
    traffic::redelivered(&traffic::records(15, count), 15)
});

fn site(kafka: &Kafka, name: &str, partitions: i32) -> Site {
    Site::new(kafka, name, partitions, traffic::SETTINGS)
        .set("ingest.batch_records_max", &BATCH_RECORDS.to_string())
}

/// Returns a lower bound of the number of records committed since the start: a record is counted as read after its
/// commit.
fn committed(adtrail: &Adtrail) -> u64 {
    adtrail.metric("adtrail_ingest_read_total").unwrap_or(0.0) as u64
}

/// Sends the signals and checks that the process shuts down cleanly. Returns its log.
#[track_caller]
fn stop(adtrail: Adtrail, signals: &[&str]) -> String {
    let since = Instant::now();
    signals.iter().for_each(|signal| adtrail.signal(signal));
    let log = adtrail.check_ended(0, &["adtrail has stopped"]);
    assert!(since.elapsed() < DEADLINE, "{:?}", since.elapsed());
    assert!(!log.contains("the store is behind the offsets"), "{log}");
    log
}

/// Starts a service and waits until it has read everything. Returns the service and the number of records it read.
fn read_rest(site: &Site) -> (Adtrail, u64) {
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = committed(&adtrail);
    (adtrail, read)
}

/// Checks whether the service is still starting. It does not handle signals yet, so a signal ends it.
fn is_starting(log: &str) -> bool {
    !log.contains("adtrail runs")
}

#[test]
fn sigterm_at_random_moments_reads_nothing_again() {
    let (stops, seed) = (from_env("ADTRAIL_STOPS", 5), from_env("ADTRAIL_STOPS_SEED", 1));
    let mut moments = fastrand::Rng::with_seed(seed);
    let kafka = Kafka::shared();
    let site = site(kafka, "shutdown.random", 4);
    let mut portions = traffic::portions(WORKLOAD.records(), stops + 1);
    // Upper bound of the number of records that are produced and not committed.
    let mut uncommitted = 0;
    for portion in portions.by_ref().take(stops) {
        thread::scope(|scope| {
            scope.spawn(|| {
                for chunk in portion.chunks(20) {
                    traffic::produce(&site.topics, chunk);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let mut adtrail = site.spawn();
            if moments.u8(..3) > 0 {
                adtrail.await_ready().unwrap();
            }
            thread::sleep(Duration::from_millis(moments.u64(..700)));
            uncommitted += portion.len() as u64;
            if is_starting(&adtrail.log()) {
                let (status, log) = adtrail.terminate();
                assert!(status.success() || is_starting(&log), "{status}: {log}");
            } else {
                uncommitted -= committed(&adtrail);
                stop(adtrail, &["TERM"]);
            }
        });
        if moments.bool() {
            let (adtrail, read) = read_rest(&site);
            assert!(
                read <= uncommitted,
                "{read} were read, at most {uncommitted} were uncommitted"
            );
            uncommitted = 0;
            stop(adtrail, &["TERM"]);
        }
    }
    let last = portions.next().unwrap();
    traffic::produce(&site.topics, last);
    let (adtrail, read) = read_rest(&site);
    uncommitted += last.len() as u64;
    println!("{stops} stops, {read} read after the last, at most {uncommitted} uncommitted");
    assert!(
        read <= uncommitted && read < WORKLOAD.records().len() as u64,
        "{read} of {uncommitted}"
    );
    WORKLOAD.check(&site, &adtrail);
    // Everything is committed, so nothing is read again.
    stop(adtrail, &["TERM"]);
    let (adtrail, read) = read_rest(&site);
    assert_eq!(read, 0);
    stop(adtrail, &["TERM"]);
}

#[test]
fn repeated_sigterm_still_shuts_down_cleanly() {
    let site = site(Kafka::shared(), "shutdown.twice", 2);
    traffic::produce(&site.topics, WORKLOAD.records());
    let adtrail = site.start();
    adtrail.await_some_read();
    let before = committed(&adtrail);
    stop(adtrail, &["TERM", "TERM", "INT", "TERM"]);
    let (adtrail, read) = read_rest(&site);
    assert!(before + read <= WORKLOAD.records().len() as u64, "{before} and {read}");
    WORKLOAD.check(&site, &adtrail);
}

#[test]
fn sigterm_before_partitions_are_found_shuts_down_cleanly() {
    let kafka = Kafka::start_to_hang();
    let site = site(&kafka, "shutdown.early", 2);
    traffic::produce_to(&kafka, &site.topics, WORKLOAD.records());
    kafka.pause();
    for _ in 0..2 {
        let adtrail = site.spawn();
        adtrail.await_log("adtrail runs");
        stop(adtrail, &["TERM"]);
    }
    // A service that waits for topics that do not exist.
    kafka.resume();
    let missing = Site::on(testbed::site::Topics::of("missing"), kafka.brokers(), ONE_CAMPAIGN);
    let adtrail = missing.spawn();
    adtrail.await_readiness(503, "no partitions are assigned yet");
    stop(adtrail, &["TERM"]);
    let (adtrail, read) = read_rest(&site);
    assert_eq!(read, WORKLOAD.records().len() as u64);
    WORKLOAD.check(&site, &adtrail);
}

#[test]
fn sigterm_while_partitions_are_added_reads_nothing_again() {
    let kafka = Kafka::shared();
    let site = site(kafka, "shutdown.grown", 1).impatient();
    let mut portions = WORKLOAD.records().chunks(WORKLOAD.records().len().div_ceil(4));
    let mut uncommitted = 0;
    for (partitions, portion) in (2..).zip(portions.by_ref().take(3)) {
        let adtrail = site.start();
        thread::scope(|scope| {
            scope.spawn(|| {
                portion.chunks(60).for_each(|chunk| traffic::produce(&site.topics, chunk))
            });
            site.topics.all().iter().for_each(|topic| kafka.grow_topic(topic, partitions));
            // The first change is detected while the service runs, others at its next start.
            if partitions == 2 {
                adtrail.await_log("the number of partitions has changed");
            }
            uncommitted += portion.len() as u64;
            uncommitted -= committed(&adtrail);
            stop(adtrail, &["TERM"]);
        });
    }
    let last = portions.next().unwrap();
    traffic::produce(&site.topics, last);
    let (adtrail, read) = read_rest(&site);
    assert!(read <= uncommitted + last.len() as u64, "{read} of {uncommitted} and {}", last.len());
    WORKLOAD.check(&site, &adtrail);
}

/// The broker acknowledges neither dead letters nor offset commits.
#[test]
fn sigterm_while_the_broker_hangs_shuts_down_cleanly() {
    let kafka = Kafka::start_to_hang();
    let site = site(&kafka, "shutdown.hangs", 2);
    traffic::produce_to(&kafka, &site.topics, WORKLOAD.records());
    let adtrail = site.start();
    adtrail.await_some_read();
    kafka.pause();
    let before = committed(&adtrail);
    stop(adtrail, &["TERM"]);
    kafka.resume();
    let (adtrail, read) = read_rest(&site);
    assert!(before + read <= WORKLOAD.records().len() as u64, "{before} and {read}");
    WORKLOAD.check(&site, &adtrail);
    // The shutdown is also clean after everything is read.
    kafka.pause();
    stop(adtrail, &["TERM"]);
    kafka.resume();
    let (adtrail, read) = read_rest(&site);
    assert_eq!(read, 0);
    stop(adtrail, &["TERM"]);
}

/// Writing to the log blocks the thread. Each download logs a line, so all threads of the listeners block as well.
#[test]
fn a_blocked_log_does_not_stop_the_shutdown() {
    let site = Site::new(Kafka::shared(), "shutdown.blocked", 1, ONE_CAMPAIGN)
        .set("run.shutdown_deadline", "2s");
    let (export, admin) = site.addresses();
    let (_unread, log) = UnixStream::pair().unwrap();
    let mut child = start_with_log(&site, &log);
    let path = format!("/v1/apps/app-x/events.csv?from={FROM}&to={TO}");
    eventually("the service responds", || http::get(&export, &path));
    fill(&log);
    let request = |address: &str, path: &str| http::begin("GET", address, path, &[], b"").unwrap();
    let mut downloads = Vec::new();
    eventually("requests get no response any more", || {
        downloads.push(request(&export, &path));
        let mut livez = request(&admin, "/livez");
        livez.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        match livez.read_to_end(&mut Vec::new()) {
            Ok(_) => Err("a request got a response"),
            Err(_) => Ok(()),
        }
    });
    assert_eq!(child.try_wait().unwrap(), None);
    kill(child.id(), "TERM");
    assert_eq!(await_exit(&mut child).code(), Some(1));
}

/// The process cannot log why it does not start.
#[test]
fn a_blocked_log_does_not_stop_a_failing_start() {
    let site = Site::new(Kafka::shared(), "shutdown.blocked-start", 1, ONE_CAMPAIGN)
        .set("run.shutdown_deadline", "2s");
    let (export, _) = site.addresses();
    let _taken = TcpListener::bind(&export).unwrap();
    let (_unread, log) = UnixStream::pair().unwrap();
    fill(&log);
    let mut child = start_with_log(&site, &log);
    assert_eq!(await_exit(&mut child).code(), Some(1));
}

fn start_with_log(site: &Site, log: &UnixStream) -> Child {
    let log: OwnedFd = log.try_clone().unwrap().into();
    site.command(&["run"]).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Fills the socket, so that writing one more byte blocks.
fn fill(mut log: &UnixStream) {
    log.set_nonblocking(true).unwrap();
    for length in [4_096, 1] {
        while log.write(&vec![b'\n'; length]).is_ok() {}
    }
    log.set_nonblocking(false).unwrap();
}

/// Starts a service with more rows than fit into the buffers of an unread socket.
fn with_long_rows(name: &str, deadline: &str) -> (Site, Adtrail) {
    let site =
        Site::new(Kafka::shared(), name, 1, ONE_CAMPAIGN).set("run.shutdown_deadline", deadline);
    let text = "x".repeat(8_000);
    let line = |n| {
        let props = format!(r#"{{"text":"{text}"}}"#);
        let time = "2025-03-10T12:00:00Z";
        format!(r#"{{"app":"app-x","event_id":"a-{n}","time":"{time}","props":{props}}}"#)
    };
    let messages = (0..3_000).map(|n| Message::new("app-x", line(n)).at(1_741_608_000_000));
    Kafka::shared().produce(&site.topics.activations, messages);
    let adtrail = site.start();
    adtrail.await_read(3_000);
    (site, adtrail)
}

/// Starts a download and reads one byte of it.
fn begin(adtrail: &Adtrail) -> TcpStream {
    let path = format!("/v1/apps/app-x/events.csv?from={FROM}&to={TO}");
    let mut stream = http::begin("GET", &adtrail.export, &path, &[], b"").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    stream
}

/// Reads the rest of a response, after the `H` of `HTTP/1.1` that [`begin`] has read. Returns whether its body is
/// complete.
fn is_whole(stream: TcpStream) -> bool {
    http::finish(stream, b"H".to_vec(), false).is_ok_and(|reply| reply.is_whole)
}

#[test]
fn downloads_in_progress_may_finish() {
    let (_site, adtrail) = with_long_rows("shutdown.downloads", "60s");
    let downloads = [begin(&adtrail), begin(&adtrail)];
    adtrail.signal("TERM");
    adtrail.await_log("stopping");
    for download in downloads {
        assert!(is_whole(download), "{}", adtrail.log());
    }
    let log = stop(adtrail, &[]);
    assert_eq!(log.matches("outcome=\"complete\"").count(), 2, "{log}");
}

#[test]
fn unread_downloads_are_aborted_visibly() {
    let (site, adtrail) = with_long_rows("shutdown.unread", "10s");
    let unread = begin(&adtrail);
    // Records that arrive during the download are read and committed.
    let line = r#"{"app":"app-x","event_id":"last","time":"2025-03-10T12:00:00Z"}"#;
    Kafka::shared().produce(&site.topics.activations, [Message::new("app-x", line)]);
    adtrail.await_read(3_001);
    let log = stop(adtrail, &["TERM"]);
    assert!(log.contains("outcome=\"aborted\""), "{log}");
    assert!(!is_whole(unread));
    let (adtrail, read) = read_rest(&site);
    assert_eq!(read, 0);
    stop(adtrail, &["TERM"]);
}

/// HBase does not respond while the store opens, so the service does not handle signals yet.
#[test]
fn a_signal_while_the_store_opens_ends_the_process_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("{:?}", [silent.local_addr().unwrap().to_string()]);
    let site = Site::new(Kafka::shared(), "shutdown.opening", 1, ONE_CAMPAIGN)
        .set("store.kind", "hbase")
        .set("store.hbase.servers", &servers);
    for (signal, code) in [("TERM", 128 + 15), ("INT", 128 + 2)] {
        let adtrail = site.spawn();
        let _connection = silent.accept().unwrap();
        adtrail.signal(signal);
        adtrail.check_ended(code, &[]);
    }
}
