//! Batches that fail in part.

use std::time::Duration;

use hbase_client::{Mutation, Put, Table};
use tokio::time::Instant;

use crate::is_multi;
use crate::support::fake::{Call, Reply, Servers};

fn rows() -> Vec<String> {
    ('a'..='z')
        .flat_map(|letter| (0..20).map(move |number| format!("{letter}{number:02}")))
        .collect()
}

pub fn put(row: &str) -> Mutation {
    Put::new(row.to_owned()).cell("d", "q", row.to_owned()).into()
}

async fn write_all(table: &Table) {
    for outcome in table.mutate_many(rows().iter().map(|row| put(row)).collect()).await {
        outcome.unwrap();
    }
}

fn is_on_s1(call: &Call) -> bool {
    is_multi(call) && call.server == "s1:1"
}

#[tokio::test(start_paused = true)]
async fn batch_continues_when_a_server_dies() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script_first(is_on_s1, |_, model| {
        model.down.insert("s1:1".to_owned());
        Reply::Close
    });
    // Another server takes over the region.
    servers.model_after(5, |model| model.move_region(0, "s2:1"));
    let started = Instant::now();
    write_all(&table).await;
    assert!((5..8).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    servers.model(|model| assert_eq!(model.rows.len(), 520));
    // The rows of other servers were not sent again.
    servers.model(|model| assert!(model.writes.values().all(|&count| count == 1)));
}

#[tokio::test(start_paused = true)]
async fn slow_server_delays_only_its_own_rows() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(move |call, model| {
        // Rows on s2 fail at first, and are written before the slow server replies.
        if is_multi(call) && call.server == "s2:1" && !model.writes.contains_key(&b"h00"[..]) {
            model.writes.insert("h00".into(), 0);
            return Some(Reply::exception("RegionTooBusyException"));
        }
        is_on_s1(call).then(|| Reply::after(Duration::from_secs(3), model.reply(call)))
    });
    let retried = servers.model_after(1, |model| model.writes.get(&b"h00"[..]).copied());
    write_all(&table).await;
    assert_eq!(retried.await.unwrap(), Some(1));
}
