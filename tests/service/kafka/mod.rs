//! Topics, records and consumer groups of every kind, and the commands for them.

mod bad_input;
mod dead_letter_topics;
mod features;
mod partition_affinity;
mod peek;
mod replay_dlq;
mod topics;
mod transactions;

use std::collections::BTreeSet;

use testbed::kafka::{Kafka, Message};
use testbed::rows;
use testbed::site::{ONE_CAMPAIGN, Site};

/// 2025-03-10T12:00:00Z.
const NOON_MS: i64 = 1_741_608_000_000;

/// A site with two partitions of each topic.
fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 2, ONE_CAMPAIGN).impatient()
}

fn activation(id: &str) -> Message {
    let line = format!(
        r#"{{"app":"app-x","event_id":"{id}","time":{NOON_MS},"ua":"{}"}}"#,
        "the same for all ".repeat(10)
    );
    Message::new(format!("key-{id}"), line).at(NOON_MS)
}

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number:03}")).collect()
}

fn messages(ids: &[String]) -> Vec<Message> {
    ids.iter().map(|id| activation(id)).collect()
}

/// Checks that the export has exactly these events.
#[track_caller]
fn check_rows(site: &Site, expected: &[&[String]]) {
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    let found: BTreeSet<String> = rows::by_event_id(rows).into_keys().collect();
    assert_eq!(found, expected.concat().into_iter().collect());
}
