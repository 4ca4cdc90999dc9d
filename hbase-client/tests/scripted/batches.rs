//! Batches of which parts fail.

use std::time::Duration;

use hbase_client::proto::data::MultiResponse;
use hbase_client::{Get, Mutation, Put, Table};
use prost::Message;
use tokio::time::Instant;

use crate::is_multi;
use crate::support::fake::{Model, Reply, Servers, pair};

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

#[tokio::test(start_paused = true)]
async fn a_batch_with_an_answer_to_something_else_is_sent_again() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut is_first = true;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && std::mem::take(&mut is_first);
        hits.then(|| {
            let Reply::Answer { message, cells } = model.reply(heard) else { panic!("an answer") };
            let mut answer = MultiResponse::decode(&message[..]).unwrap();
            answer.region_action_result[0].result_or_exception[0].index = Some(7_000);
            Reply::Answer { message: answer.encode_to_vec(), cells }
        })
    });
    write_all(&table).await;
    let twice = servers.model(|model| model.writes.values().filter(|&&count| count == 2).count());
    assert_eq!(twice, 140, "the whole batch");
}

#[tokio::test(start_paused = true)]
async fn batch_goes_on_where_a_server_dies() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut calls = 0;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && heard.server == "s1:1";
        calls += usize::from(hits);
        (hits && calls == 1).then(|| {
            model.down.insert("s1:1".to_owned());
            // Another one takes the region over, after a while.
            Reply::Close
        })
    });
    let taken_over = servers.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        taken_over.model(|model| model.move_region(0, "s2:1"));
    });
    let begun = Instant::now();
    write_all(&table).await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(8), "{waited:?}");
    servers.model(|model| assert_eq!(model.rows.len(), 520));
    // The others were not waited with, nor sent again.
    servers.model(|model| assert!(model.writes.values().all(|&count| count == 1)));
}

#[tokio::test(start_paused = true)]
async fn slow_server_holds_up_its_own_rows_alone() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && heard.server == "s1:1";
        // The others' rows fail at first; they are through before the slow one answers.
        if is_multi(heard) && heard.server == "s2:1" && !model.writes.contains_key(&b"h00"[..]) {
            model.writes.insert("h00".into(), 0);
            return Some(Reply::exception("org.apache.hadoop.hbase.RegionTooBusyException"));
        }
        let reply = hits.then(|| Box::new(model.reply(heard)))?;
        Some(Reply::After(Duration::from_secs(3), reply))
    });
    let observed = servers.clone();
    let observing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        observed.model(|model| model.writes.get(&b"h00"[..]).copied())
    });
    write_all(&table).await;
    assert_eq!(observing.await.unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn rest_of_an_answer_that_is_too_large_is_asked_for_at_once() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    servers.script(|heard, model| {
        is_multi(heard).then(|| {
            let Reply::Answer { message, cells } = model.reply(heard) else { panic!("an answer") };
            let mut answer = MultiResponse::decode(&message[..]).unwrap();
            let rows = &mut answer.region_action_result[0].result_or_exception;
            // Three cells a row.
            let kept = first_cells(&cells, 3 * rows.len().min(10));
            for row in rows.iter_mut().skip(10) {
                let class = "org.apache.hadoop.hbase.MultiActionResultTooLarge";
                (row.result, row.exception) = (None, Some(pair(class)));
            }
            Reply::Answer { message: answer.encode_to_vec(), cells: kept }
        })
    });
    let begun = Instant::now();
    let rows: Vec<_> = (0..100).map(|row| format!("a{row:02}")).collect();
    let found = table.get_many(rows.iter().cloned().map(Get::new).collect()).await;
    for (row, found) in rows.iter().zip(found) {
        assert_eq!(found.unwrap().unwrap().key(), row.as_bytes());
    }
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(servers.count(is_multi), 10);
}

/// The first cells of a block.
fn first_cells(block: &bytes::Bytes, count: usize) -> bytes::Bytes {
    let mut rest = block.clone();
    (0..count).for_each(|_| drop(hbase_client::wire::cell::Cell::take(&mut rest).unwrap()));
    block.slice(..block.len() - rest.len())
}
