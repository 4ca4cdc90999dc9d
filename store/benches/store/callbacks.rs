//! What callbacks cost: commits of attributed events without an endpoint and with one, and the outbox during delivery.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adtrail_store::embedded::Embedded;
use attribution::facts::event::{
    Activation, EventTime, Fact, Purpose, SpreadId, TouchFields, TouchKind,
};
use attribution::outbox::interest::{Interest, Interests, LateCredit};
use attribution::outbox::port::{Outbox, Outcome};
use attribution::outbox::record::{CallbackKind, EndpointId, OutboxKey};
use attribution::worker::{Batch, Worker};
use config::Config;

use crate::support::{cpu_seconds, memory_mib};
use crate::{BATCH, facts, settings, settle, thread_seconds};

/// Records that are delivered together.
const DELIVERED_TOGETHER: usize = 500;
const LEASE_MS: u64 = 60_000;
/// Longer than the events are old.
const MAX_AGE_MS: u64 = 1 << 47;

pub fn run(folder: &Path, total: usize) {
    let (without, _) = commit(&folder.join("without-endpoint"), total, Vec::new());
    let (with, store) = commit(&folder.join("with-endpoint"), total, vec![interest()]);
    println!(
        "{total} events: {without:.2} CPU-seconds without an endpoint, {with:.2} with one: {:+.1} %, \
         {:.2} microseconds per event",
        (with / without - 1.0) * 100.0,
        (with - without) / total as f64 * 1e6
    );
    deliver(&store);
}

fn endpoint() -> EndpointId {
    EndpointId::new("network")
}

fn interest() -> Interest {
    Interest {
        endpoint: endpoint(),
        apps: Vec::new(),
        channels: Vec::new(),
        kinds: vec![CallbackKind::Activation, CallbackKind::Effect],
        event_names: Vec::new(),
        settle_ms: 0,
        max_age_ms: MAX_AGE_MS,
        late_credit: LateCredit::Withhold,
    }
}

/// Commits events, each attributed. Returns the CPU seconds, compactions included, and the store.
fn commit(path: &Path, total: usize, interests: Vec<Interest>) -> (f64, Embedded) {
    let config: Config = settings(path);
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let interests = Arc::new(Interests::new(interests, Arc::clone(&config.policy)));
    let mut worker = Worker::new(store, Arc::clone(&config.policy)).with_interests(interests);
    let before = cpu_seconds(std::process::id());
    for first in (0..total).step_by(BATCH) {
        let numbers = first as u64..(first + BATCH).min(total) as u64;
        let facts = numbers.flat_map(|number| with_click(facts::event(number))).collect();
        worker.process_ahead(Batch { facts, ..Batch::default() }).expect("the commit succeeds");
    }
    worker.process(Batch::default()).expect("the commit succeeds");
    drop(worker);
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    settle(&store);
    (cpu_seconds(std::process::id()) - before, store)
}

/// Returns an event and, if it is an activation, the click that brought it.
fn with_click(event: Fact) -> Vec<Fact> {
    let Fact::Activation(activation) = &event else { return vec![event] };
    vec![click(activation), event]
}

fn click(activation: &Activation) -> Fact {
    let id: Box<str> = format!("click-{}", activation.id).into();
    let fields = TouchFields {
        pid: activation.pid,
        id: id.clone(),
        click_id: id,
        kind: TouchKind::Click,
        purpose: Purpose::Ua,
        spreadid: SpreadId(activation.pid.0),
        time: activation.time.minus(60_000),
        lookback_ms: None,
        ids: activation.ids.clone(),
        device: activation.device.clone(),
        site: "".into(),
        params: vec![("callback".into(), "a-token-of-the-network".into())],
    };
    Fact::Touch(fields.into())
}

/// Claims and finishes all callbacks.
fn deliver(store: &Embedded) {
    let mut outbox = store.outbox();
    // Later than all due times.
    let now = EventTime::MAX.minus(LEASE_MS);
    let (started, cpu, mut delivered) = (Instant::now(), thread_seconds(), 0);
    loop {
        let records =
            outbox.due(&endpoint(), now, DELIVERED_TOGETHER).expect("the outbox is readable");
        if records.is_empty() {
            break;
        }
        let keys = records.iter().flat_map(|record| {
            record.entries.iter().map(|entry| record.key_of(entry)).collect::<Vec<OutboxKey>>()
        });
        let keys: Vec<OutboxKey> = keys.collect();
        let claims = outbox.claim(&keys, now, LEASE_MS).expect("the outbox is writable");
        delivered += claims.len();
        for claim in claims {
            let sent = Outcome::Sent { note: "200".into() };
            outbox.finish(&[(claim, sent)], now).expect("the outbox is writable");
        }
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), thread_seconds() - cpu);
    let counts = outbox.counts().expect("the outbox is readable");
    let sent: u64 = counts.values().map(|tally| tally.sent).sum();
    assert_eq!(sent, delivered as u64, "every callback counts as sent");
    println!(
        "{delivered} callbacks claimed {DELIVERED_TOGETHER} at a time and finished one by one: {:.0} per second, \
         {:.1} microseconds of this thread each, {:?} MiB",
        delivered as f64 / seconds,
        cpu / delivered as f64 * 1e6,
        memory_mib(std::process::id())
    );
}
