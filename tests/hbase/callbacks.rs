//! Callbacks over HBase: all workers share one outbox, and what one has claimed is sent by another if it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::time::{SystemTime, UNIX_EPOCH};

use attribution::facts::event::EventTime;
use attribution::outbox::record::{Counts, EndpointId, Tally};
use hbase_client::Put;
use serde_json::{Value, json};
use store::hbase::counts::{CountLease, CountsRow, LastCount};
use testbed::adtrail::Adtrail;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, hbase, length};

use super::network::Network;
use super::{await_all_read, output_of, remove, with_client};

const NAME: &str = "hbase-callbacks";
const COUNTS_NAME: &str = "hbase-counts";
const CRASHES_NAME: &str = "hbase-callbacks-crashes";
const CATALOGUES_NAME: &str = "hbase-callbacks-catalogues";
const MINUTE_MS: u64 = 60_000;
const SIGABRT: i32 = 6;
/// Number of activations of each half.
const EVENTS: u64 = 100;

fn settings(network: &Network) -> String {
    let url = network.url("/hook");
    format!(
        "[attribution]\ncorrection_horizon = \"off\"\n\
         [callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n\
         [[callbacks.endpoint]]\nname = \"hook\"\npreset = \"webhook\"\nurl = \"{url}\"\n\
         kinds = [\"activation.attributed\"]\nrequests_per_second_max = 10000\n\
         credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n{ONE_CAMPAIGN}"
    )
}

/// A site whose workers soon take over the partitions of one that has died.
fn site(name: &str, settings: &str) -> Site {
    hbase::with_tables(name, 4, settings)
        .impatient()
        .set("kafka.librdkafka.session.timeout.ms", "6000")
        .set("kafka.librdkafka.heartbeat.interval.ms", "500")
}

fn now() -> EventTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = i64::try_from(now.as_millis()).expect("before the year 9999");
    EventTime::from_millis(now_ms).expect("before the year 9999")
}

/// Produces a click and an activation of each of these devices.
fn produce(site: &Site, devices: std::ops::Range<u64>) {
    let now_ms = now().millis();
    let message = |event: Value| Message::new("app-x", event.to_string());
    let ids = |device: u64| json!({"oaid": format!("1fe9a970-efbb-29e0-0bdd-{device:012x}")});
    let clicks = devices.clone().map(|device| {
        message(json!({
            "type": "click", "app": "app-x", "spreadid": 7, "click_id": format!("c-{device}"),
            "time": now_ms - 2 * MINUTE_MS, "ids": ids(device),
        }))
    });
    let activations = devices.map(|device| {
        message(json!({
            "type": "activation", "app": "app-x", "event_id": format!("a-{device}"),
            "time": now_ms - MINUTE_MS, "ids": ids(device),
        }))
    });
    Kafka::shared().produce(&site.topics.clicks, clicks);
    Kafka::shared().produce(&site.topics.activations, activations);
}

/// Waits until each of these activations is sent, and checks that all requests about one have one id.
#[track_caller]
fn check_sent(site: &Site, network: &Network, activations: u64) {
    let counts = eventually("all callbacks are sent", || {
        let line = output_of(site, &["callbacks", "list", "--counts"], 0, &[]);
        let counts: Value = serde_json::from_str(&line).unwrap_or_default();
        if counts["sent"] == activations { Ok(counts) } else { Err(line) }
    });
    let states = ["pending", "sent", "dropped", "withheld", "too_old", "dead"];
    let ended: u64 = states.iter().filter_map(|state| counts[state].as_u64()).sum();
    assert_eq!(counts["made"], ended, "{counts}");
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for hook in network.received("/hook") {
        let event = hook.json()["data"]["event_id"].to_string();
        ids.entry(event).or_default().insert(hook.headers["webhook-id"].clone());
    }
    assert_eq!(ids.len() as u64, activations);
    assert!(ids.values().all(|of_event| of_event.len() == 1), "{ids:?}");
}

#[test]
fn workers_share_the_callbacks_and_a_killed_one_loses_none() {
    let network = Network::start();
    network.answer("/hook", 200, "");
    let site = site(NAME, &settings(&network));
    let killed = site.start_role("attribute");
    produce(&site, 0..EVENTS);
    network.await_requests("/hook", 1);
    killed.kill9();
    let workers = [site.start_role("attribute"), site.start_role("attribute")];
    produce(&site, EVENTS..2 * EVENTS);
    check_sent(&site, &network, 2 * EVENTS);
    assert_eq!(output_of(&site, &["callbacks", "retry"], 0, &[]), "{\"retried\":0}\n");
    for worker in workers {
        worker.stop();
    }
    remove(NAME);
}

/// Where workers crash, one after another; `None` is killed once it sends.
const CRASHES: [Option<&str>; 6] = [
    Some("batch-committed"),
    Some("callback-settled"),
    Some("callback-claimed"),
    Some("callback-sent"),
    Some("callback-finished"),
    None,
];

#[test]
fn workers_that_crash_or_are_killed_at_any_step_lose_no_callback() {
    let network = Network::start();
    network.answer("/hook", 200, "");
    let site = site(CRASHES_NAME, &settings(&network));
    let rounds = length(1, 34);
    let mut activations = 0;
    for crash in (0..rounds).flat_map(|_| CRASHES) {
        let before = network.received("/hook").len();
        produce(&site, activations..activations + 2);
        activations += 2;
        let Some(point) = crash else {
            let killed = site.start_role("attribute");
            network.await_requests("/hook", before + 1);
            killed.kill9();
            continue;
        };
        let points = format!("{point}=return");
        let (status, log) = site.spawn_as("attribute", &[("FAILPOINTS", &points)]).wait();
        assert_eq!(status.signal(), Some(SIGABRT), "{point}: {status}: {log}");
    }
    let worker = site.start_role("attribute");
    check_sent(&site, &network, activations);
    worker.stop();
    remove(CRASHES_NAME);
}

#[test]
fn a_worker_that_does_not_have_the_campaign_yet_does_not_drop_a_callback() {
    let network = Network::start();
    network.answer("/hook", 503, "");
    let reloaded = settings(&network).replacen("kinds =", "channels = [\"toutiao\"]\nkinds =", 1);
    let (before, _) = reloaded.split_once("[[campaigns]]").expect("there is a campaign");
    let mut site = site(CATALOGUES_NAME, &reloaded);
    produce(&site, 0..1);
    let worker = site.start_role("attribute");
    network.await_requests("/hook", 1);
    await_all_read(&site);
    worker.stop();
    site.change(before);
    let list = || output_of(&site, &["callbacks", "list"], 0, &[]);
    let made = list();
    let worker = site.start_role("attribute");
    eventually("the worker has looked at the callback", || match list() {
        same if same == made => Err(same),
        _ => Ok(()),
    });
    worker.stop();
    network.answer("/hook", 200, "");
    site.change(&reloaded);
    let worker = site.start_role("attribute");
    check_sent(&site, &network, 1);
    worker.stop();
    remove(CATALOGUES_NAME);
}

/// Puts the row of the counts, as a worker does.
fn put_counts(row: &CountsRow) {
    let put = Put::new("callback_counts").cell("d", "v", row.encode());
    with_client(async |client| {
        let meta = client.table(&format!("{COUNTS_NAME}_meta")).expect("the name is valid");
        meta.mutate(put).await.expect("the row is put");
    });
}

fn counted(at: EventTime, made: u64) -> LastCount {
    let tally = Tally { made, sent: made, ..Tally::default() };
    LastCount { at, counts: Counts::from([(EndpointId::new("hook"), tally)]) }
}

/// Checks that all workers say that this number of callbacks was made.
fn check_made(workers: &[Adtrail], expected: u64) -> Result<(), String> {
    let made = workers.iter().map(|worker| worker.metric("adtrail_callbacks_made"));
    let made: Vec<Option<f64>> = made.collect();
    let is_expected = made.iter().all(|made| *made == Some(expected as f64));
    if is_expected { Ok(()) } else { Err(format!("{made:?}")) }
}

#[test]
fn one_worker_counts_the_callbacks_for_all() {
    let network = Network::start();
    network.answer("/hook", 200, "");
    let site = site(COUNTS_NAME, &settings(&network));
    let workers = [site.start_role("attribute"), site.start_role("attribute")];
    produce(&site, 0..EVENTS);
    network.await_requests("/hook", 1);
    eventually("all workers have the count of another process", || {
        // It would be counted again after the interval.
        put_counts(&CountsRow { lease: None, last: Some(counted(now(), 777)) });
        check_made(&workers, 777)
    });
    // A process that has died while it counted. One of the workers takes over, after the lease.
    let lease = Some(CountLease { owner: 1, until: now().plus(5_000) });
    put_counts(&CountsRow { lease, last: Some(counted(EventTime::default(), 777)) });
    eventually("all callbacks are counted", || check_made(&workers, EVENTS));
    for worker in workers {
        worker.stop();
    }
    remove(COUNTS_NAME);
}
