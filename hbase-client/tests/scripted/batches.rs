//! Batches that fail in part.

use std::time::Duration;

use bytes::Bytes;
use hbase_client::proto::data::MultiResponse;
use hbase_client::{Cell, Get, Mutation, Put, Table};
use prost::Message;
use tokio::time::Instant;

use crate::is_multi;
use crate::support::fake::{Call, Model, Reply, Servers, pair};

fn rows() -> Vec<String> {
    ('a'..='z')
        .flat_map(|letter| (0..20).map(move |number| format!("{letter}{number:02}")))
        .collect()
}

pub fn put(row: &str) -> Mutation {
    Put::new(row.to_owned()).cell("d", "q", row.to_owned()).into()
}

pub async fn write_all(table: &Table) {
    for outcome in table.mutate_many(rows().iter().map(|row| put(row)).collect()).await {
        outcome.unwrap();
    }
}

fn is_on_s1(call: &Call) -> bool {
    is_multi(call) && call.server == "s1:1"
}

/// Returns the decoded response of the model, and its cells.
fn reply(call: &Call, model: &mut Model) -> (MultiResponse, Bytes) {
    let Reply::Response { message, cells } = model.reply(call) else {
        panic!("the model returned no response")
    };
    (MultiResponse::decode(&message[..]).unwrap(), cells)
}

#[tokio::test(start_paused = true)]
async fn batch_with_a_response_to_another_request_is_retried() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script_first(is_multi, |call, model| {
        let (mut response, cells) = reply(call, model);
        response.region_action_result[0].result_or_exception[0].index = Some(7_000);
        Reply::Response { message: response.encode_to_vec(), cells }
    });
    write_all(&table).await;
    let twice = servers.model(|model| model.writes.values().filter(|&&count| count == 2).count());
    assert_eq!(twice, 140, "the whole call is repeated");
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

#[tokio::test(start_paused = true)]
async fn rest_of_a_too_large_response_is_requested_at_once() {
    let servers = Servers::filled();
    let table = servers.table().await;
    servers.script(|call, model| {
        is_multi(call).then(|| {
            let (mut response, cells) = reply(call, model);
            let rows = &mut response.region_action_result[0].result_or_exception;
            // Each row has three cells.
            let kept = first_cells(&cells, 3 * rows.len().min(10));
            for row in rows.iter_mut().skip(10) {
                (row.result, row.exception) = (None, Some(pair("MultiActionResultTooLarge")));
            }
            Reply::Response { message: response.encode_to_vec(), cells: kept }
        })
    });
    let started = Instant::now();
    let rows: Vec<_> = (0..100).map(|row| format!("a{row:02}")).collect();
    let found = table.get_many(rows.iter().cloned().map(Get::new).collect()).await;
    for (row, found) in rows.iter().zip(found) {
        assert_eq!(found.unwrap().unwrap().key(), row.as_bytes());
    }
    assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
    assert_eq!(servers.count(is_multi), 10);
}

/// Returns the first cells of a block.
fn first_cells(block: &Bytes, count: usize) -> Bytes {
    let mut rest = block.clone();
    (0..count).for_each(|_| drop(Cell::take(&mut rest).unwrap()));
    block.slice(..block.len() - rest.len())
}
