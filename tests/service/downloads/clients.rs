//! Many concurrent clients while rows are corrected: 200 clients download, some disconnect, and one reads a byte a
//! second. Each gets one snapshot or a transfer that visibly fails; memory is bounded, and ingest continues.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::adtrail::Adtrail;
use testbed::exports::check_same;
use testbed::http::{self, Reply};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{SetOnDrop, run_ok};

/// 2026-03-10T00:00:00Z.
const DAY: u64 = 1_773_100_800_000;
/// Number of rows of 2 KB, a second of event time apart: together more than all buffers between disk and client.
const ROWS: usize = 20_000;
/// Number of the newest rows, which all clients download.
const LAST_ROWS: usize = 2_000;
/// Number of these rows that are corrected meanwhile.
const CORRECTED: usize = 400;
const CLIENTS: usize = 200;
/// Limit of the process's resident memory, in MiB: the store has 64, librdkafka 16, and each of 64 downloads up to 9
/// for queued chunks and readahead. 603 were measured.
const MEMORY_MIB_MAX: u64 = 800;

const ALL: &str = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10";
const LAST: &str = "/v1/apps/app-x/events.csv?from=2026-03-10T05:00:00Z&to=2026-03-11T00:00:00Z";

fn device(n: usize) -> Value {
    json!({ "oaid": format!("{n:08x}-1111-4222-8333-444444444444") })
}

fn activation(n: usize) -> String {
    let text: String = (0..2_000).map(|_| fastrand::alphanumeric()).collect();
    let time = DAY + 1_000 * n as u64;
    json!({
        "type": "activation", "app": "app-x", "event_id": format!("a-{n}"), "time": time,
        "ids": device(n), "props": { "text": text },
    })
    .to_string()
}

/// A click that changes the row of the activation.
fn click(n: usize) -> String {
    let time = DAY + 1_000 * n as u64 - 500;
    json!({
        "type": "click", "app": "app-x", "click_id": format!("c-{n}"), "spreadid": 7,
        "time": time, "ids": device(n),
    })
    .to_string()
}

/// The possible snapshots of the newest rows: the original rows with the first `n` corrections applied.
struct Snapshots {
    head: Vec<u8>,
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    /// The order in which rows are corrected.
    order: Vec<usize>,
}

impl Snapshots {
    fn new(before: &[u8], after: &[u8], order: Vec<usize>) -> Self {
        let lines = |csv: &[u8]| -> Vec<Vec<u8>> {
            csv.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
        };
        let (before, after) = (lines(before), lines(after));
        assert_eq!((before.len(), after.len()), (ROWS + 1, ROWS + 1));
        let last = |lines: &[Vec<u8>]| lines[1 + ROWS - LAST_ROWS..].to_vec();
        Self { head: before[0].clone(), before: last(&before), after: last(&after), order }
    }

    fn of(&self, corrections: usize) -> Vec<u8> {
        let mut lines: Vec<&Vec<u8>> = self.before.iter().collect();
        for n in &self.order[..corrections] {
            lines[*n - (ROWS - LAST_ROWS)] = &self.after[*n - (ROWS - LAST_ROWS)];
        }
        let rows = lines.into_iter().flatten().copied();
        self.head.iter().copied().chain(rows).collect()
    }

    /// Returns the number of corrections in a body, which must be one of the snapshots.
    #[track_caller]
    fn find(&self, body: &[u8]) -> usize {
        // The status is among the first 200 bytes of a line.
        let heads = body.split(|byte| *byte == b'\n').map(|line| &line[..line.len().min(200)]);
        let corrections = heads.filter(|head| contains(head, b",attributed,")).count();
        assert!(
            body == self.of(corrections),
            "no snapshot has exactly these {corrections} corrections"
        );
        corrections
    }
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// Checks that a download is complete and that its trailer has the checksum of its body.
#[track_caller]
fn check_whole(reply: &Reply) {
    assert!(reply.status == 200 && reply.is_whole, "{} {}", reply.status, reply.is_whole);
    let sum = run_ok(&mut Command::new("sha256sum"), &reply.body);
    assert_eq!(reply.trailer("adtrail-sha256"), Some(&*String::from_utf8_lossy(&sum[..64])));
}

/// Outcomes of the clients' downloads.
#[derive(Default)]
struct Outcomes {
    refused: AtomicUsize,
    disconnected: AtomicUsize,
    complete: AtomicUsize,
    snapshots: Mutex<BTreeSet<usize>>,
}

impl Outcomes {
    /// Downloads repeatedly, until one download is complete and all rows are corrected.
    fn client(
        &self,
        number: usize,
        adtrail: &Adtrail,
        snapshots: &Snapshots,
        is_over: &AtomicBool,
    ) {
        let mut has_download = false;
        while !(has_download && is_over.load(Relaxed)) {
            if number % 10 == 9 {
                self.disconnect(adtrail);
            }
            let reply = adtrail.get(LAST).unwrap();
            if matches!(reply.status, 429 | 503) {
                assert!(reply.is_whole && reply.header("retry-after").is_some(), "{reply:?}");
                self.refused.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            check_whole(&reply);
            self.snapshots.lock().unwrap().insert(snapshots.find(&reply.body));
            self.complete.fetch_add(1, Relaxed);
            has_download = true;
        }
    }

    /// Reads the beginning of a download and disconnects.
    fn disconnect(&self, adtrail: &Adtrail) {
        let mut stream = http::begin("GET", &adtrail.export, LAST, &[], b"").unwrap();
        let mut beginning = vec![0; 20_000];
        if stream.read_exact(&mut beginning).is_ok() {
            self.disconnected.fetch_add(1, Relaxed);
        }
    }

    /// Checks that every client had a complete download, and that there were downloads of every kind.
    fn check(&self, memory_mib_max: u64) {
        let [refused, disconnected, complete] =
            [&self.refused, &self.disconnected, &self.complete].map(|count| count.load(Relaxed));
        let snapshots = self.snapshots.lock().unwrap().len();
        println!(
            "{complete} complete downloads of {snapshots} snapshots, {disconnected} disconnected, \
             {refused} refused, at most {memory_mib_max} MiB"
        );
        assert!(complete >= CLIENTS && disconnected > 0 && snapshots > 2);
    }
}

/// Reads a byte a second until it receives a message, then the rest.
fn slow_client(adtrail: &Adtrail, finish: &Receiver<()>) -> Reply {
    let mut stream = http::begin("GET", &adtrail.export, ALL, &[], b"").unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
        match finish.recv_timeout(Duration::from_secs(1)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    assert!(bytes.len() > 1, "it read only one byte before it could finish");
    http::finish(stream, bytes, false).unwrap()
}

/// Corrects rows, ten at a time, and waits until they are committed.
fn correct(site: &Site, adtrail: &Adtrail, clicks: &[String]) {
    let producer = Kafka::shared().producer();
    let mut read = ROWS;
    for chunk in clicks.chunks(10) {
        let message = |line: &String| (&*site.topics.clicks, Message::new("app-x", line.clone()));
        producer.produce_all(
            chunk.iter().map(message).map(|(topic, message)| (topic, message.at(DAY as i64))),
        );
        read += chunk.len();
        adtrail.await_read(read as u64);
    }
}

/// The events, in the order in which they are produced, and their possible exports.
struct Events {
    activations: Vec<String>,
    /// The clicks that correct rows, in a random order.
    clicks: Vec<String>,
    /// The export before and after all corrections.
    before: Vec<u8>,
    after: Vec<u8>,
    snapshots: Snapshots,
}

impl Events {
    fn new(site: &Site) -> Self {
        let activations: Vec<String> = (0..ROWS).map(activation).collect();
        let mut order: Vec<usize> = (ROWS - LAST_ROWS..ROWS).collect();
        fastrand::Rng::with_seed(15).shuffle(&mut order);
        order.truncate(CORRECTED);
        let clicks: Vec<String> = order.iter().map(|n| click(*n)).collect();
        let before = site.replay("app-x", activations.join("\n").as_bytes());
        let after = [&activations[..], &clicks].concat().join("\n");
        let after = site.replay("app-x", after.as_bytes());
        let snapshots = Snapshots::new(&before, &after, order);
        Self { activations, clicks, before, after, snapshots }
    }
}

/// Corrects rows while all clients download, and checks the downloads.
fn correct_during_downloads(site: &Site, adtrail: &Adtrail, events: &Events) -> Outcomes {
    let (outcomes, is_over) = (Outcomes::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (finish, finished) = channel();
        let slow = scope.spawn(move || slow_client(adtrail, &finished));
        adtrail.await_metric("adtrail_export_active", "", |active| active >= 1.0);
        let (outcomes, is_over) = (&outcomes, &is_over);
        let client =
            |n| scope.spawn(move || outcomes.client(n, adtrail, &events.snapshots, is_over));
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let over = SetOnDrop(is_over);
        correct(site, adtrail, &events.clicks);
        drop(over);
        clients.into_iter().for_each(|client| client.join().unwrap());
        // The snapshot of the slow client is older than all corrections, and most of it is not sent yet.
        finish.send(()).unwrap();
        let reply = slow.join().unwrap();
        check_whole(&reply);
        check_same("the slow download", &reply.body, &events.before);
    });
    outcomes
}

#[test]
fn each_of_many_downloads_is_one_snapshot_while_rows_are_corrected() {
    let site = Site::new(Kafka::shared(), "clients", 1, ONE_CAMPAIGN)
        .set("store.memory", "64MiB")
        .set("export.downloads_per_token_max", "64")
        // All clients have one address.
        .set("export.connections_per_client_max", "512")
        .set("ingest.batch_age_max", "20ms");
    let events = Events::new(&site);
    let messages = events.activations.iter().map(|line| Message::new("app-x", line.clone()));
    let messages = messages.map(|message| message.at(DAY as i64));
    Kafka::shared().produce(&site.topics.activations, messages);
    let adtrail = site.start();
    adtrail.await_read(ROWS as u64);
    let outcomes = correct_during_downloads(&site, &adtrail, &events);
    let memory_mib_max = adtrail.status("VmHWM:") / 1024;
    outcomes.check(memory_mib_max);
    assert!(memory_mib_max < MEMORY_MIB_MAX, "{memory_mib_max} MiB");
    adtrail.await_metric("adtrail_export_active", "", |active| active == 0.0);
    assert!(adtrail.metric("adtrail_export_aborted_total") > Some(0.0));
    let by_http = adtrail.get(ALL).unwrap();
    check_whole(&by_http);
    assert!(by_http.body == events.after, "by HTTP");
    let by_command = site.download("app-x", "2026-03-10", "2026-03-10", &[]);
    assert!(by_command == events.after, "by the command");
    adtrail.stop();
}
