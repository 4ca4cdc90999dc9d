//! A batch with more rows than a server accepts in one call, and a client that pauses for longer than a scanner lives.

use std::io::Read;
use std::thread;
use std::time::Duration;

use testbed::exports::check_same;
use testbed::kafka::{Kafka, Message};
use testbed::site::ONE_CAMPAIGN;
use testbed::traffic::{FROM, TO};
use testbed::{hbase, http};

use super::await_all_read;

/// Number of events of one app and partition, in a batch of the default size. A server rejects more than 1,000 rows per
/// call.
const EVENTS: u64 = 5_000;
/// Length of a text of each event, below its limit. All events together exceed the buffers between the store and the
/// client, and a batch of 8 MiB has more than 1,000 of them.
const BYTES: usize = 8_000;
/// Longer than the lease of an idle scanner, which is 3 s and checked every half second.
const PAUSE: Duration = Duration::from_secs(8);

fn lines() -> impl Iterator<Item = String> {
    let text = "x".repeat(BYTES);
    (0..EVENTS).map(move |n| {
        let time_ms = 1_741_608_000_000 + n;
        format!(
            r#"{{"type":"activation","app":"app-x","event_id":"a-{n}","time":{time_ms},"props":{{"text":"{text}"}}}}"#
        )
    })
}

#[test]
fn a_download_survives_an_expired_scanner() {
    let settings = format!("[attribution]\ncorrection_horizon = \"off\"\n{ONE_CAMPAIGN}");
    let site = hbase::with_tables("hbase-large", 1, &settings);
    let messages = lines().map(|line| Message::new("app-x", line));
    Kafka::shared().produce(&site.topics.activations, messages);
    let mut adtrail = site.spawn_with(&[("RUST_LOG", "info,hbase_client=debug")]);
    adtrail.await_ready().unwrap();
    await_all_read(&site);
    let path = format!("/v1/apps/app-x/events.csv?from={FROM}&to={TO}");
    let mut stream = http::begin("GET", &adtrail.export, &path, &[], b"").unwrap();
    let mut beginning = vec![0; 1_000];
    stream.read_exact(&mut beginning).unwrap();
    thread::sleep(PAUSE);
    let reply = http::finish(stream, beginning, false).unwrap();
    assert!(reply.status == 200 && reply.is_whole, "{}", adtrail.log());
    assert!(adtrail.log().contains("resuming a scan"), "{}", adtrail.log());
    let replayed = site.replay("app-x", lines().collect::<Vec<_>>().join("\n").as_bytes());
    check_same("app-x", &reply.body, &replayed);
}
