//! Locating regions, and locating them again after changes.

use hbase_client::{Error, Get, Put, Table};
use tokio::task::JoinSet;

use crate::support::fake::{FakeRegion, Reply, Servers};
use crate::{is_meta_scan, is_multi};

async fn get_all(table: &Table, rows: impl Iterator<Item = String>) {
    let mut reading = JoinSet::new();
    for row in rows {
        let table = table.clone();
        reading.spawn(async move { table.get(Get::new(row)).await.map(|row| row.is_some()) });
    }
    while let Some(found) = reading.join_next().await {
        assert!(found.unwrap().unwrap());
    }
}

fn rows(letters: std::ops::RangeInclusive<char>) -> impl Iterator<Item = String> {
    letters.flat_map(|letter| (0..100).map(move |number| format!("{letter}{number:02}")))
}

#[tokio::test(start_paused = true)]
async fn concurrent_lookups_of_a_region_are_shared() {
    let servers = Servers::filled();
    let table = servers.table().await;
    get_all(&table, rows('a'..='z')).await;
    // One scan back to the region, and one forward to the regions after it.
    assert_eq!(servers.count(is_meta_scan), 2);
    servers.model(|model| model.move_region(1, "s1:1"));
    get_all(&table, rows('h'..='o')).await;
    assert_eq!(servers.count(is_meta_scan), 3);
    // The other locations stay cached.
    get_all(&table, rows('a'..='z')).await;
    assert_eq!(servers.count(is_meta_scan), 3);
}

#[tokio::test(start_paused = true)]
async fn outdated_response_of_meta_does_not_replace_newer_regions() {
    let servers = Servers::filled();
    servers.model(|model| {
        model.regions[0].is_parent = true;
        model.regions.push(FakeRegion::new("", "d", 2, "s2:1"));
        model.regions.push(FakeRegion::new("d", "h", 2, "s3:1"));
    });
    let table = servers.table().await;
    get_all(&table, rows('a'..='z')).await;
    // One daughter moves, and the first lookup of it returns the parent as before the split.
    servers.model(|model| model.move_region(4, "s1:1"));
    servers.script_first(is_meta_scan, |call, model| {
        let now = model.regions.clone();
        model.regions.truncate(3);
        model.regions[0].is_parent = false;
        let reply = model.reply(call);
        model.regions = now;
        reply
    });
    let lookups = servers.count(is_meta_scan);
    let calls_before = servers.with(|fake| fake.calls.len());
    assert!(table.get(Get::new("e00")).await.unwrap().is_some());
    // The outdated response and a current one. Neither lookup reads ahead.
    assert_eq!(servers.count(is_meta_scan) - lookups, 2);
    // The other daughter stays cached: its rows are not requested from the parent.
    get_all(&table, rows('a'..='c')).await;
    assert_eq!(servers.count(is_meta_scan) - lookups, 2);
    let to_parent = servers.with(|fake| {
        let later = fake.calls[calls_before..].iter().filter(|call| is_multi(call));
        later.filter(|call| call.param.windows(10).any(|part| part == b"t,,1.encod")).count()
    });
    assert_eq!(to_parent, 1, "the call after the outdated lookup");
}

#[tokio::test(start_paused = true)]
async fn region_without_a_server_delays_only_its_own_rows() {
    let servers = Servers::new();
    servers.model(|model| model.regions[0].listed.clear());
    let table = servers.table().await;
    let others = servers.model_after(1, |model| model.rows.len());
    servers.model_after(30, |model| model.regions[0].listed = "s1:1".to_owned());
    // The client has no locations yet, and locates the rows of the closed region first.
    let puts = rows('a'..='z').map(|row| Put::new(row).cell("d", "q", "1").into());
    assert!(table.mutate_many(puts.collect()).await.iter().all(Result::is_ok));
    assert_eq!(others.await.unwrap(), 1_900, "2,600 rows, of which 700 wait");
    let lookups = servers.count(is_meta_scan);
    assert!(lookups < 100, "{lookups} lookups");
}

#[tokio::test(start_paused = true)]
async fn disabled_table_is_distinguished_from_a_region_without_a_server() {
    let servers = Servers::new();
    let table = servers.table().await;
    let put = || Put::new("a").cell("d", "q", "1");
    servers.model(|model| {
        model.state = Some(1);
        model.regions.iter_mut().for_each(|region| region.listed.clear());
    });
    let error = table.mutate(put()).await.unwrap_err();
    assert!(matches!(error, Error::Disabled { .. }), "{error}");
    servers.model(|model| model.state = Some(0));
    let error = table.mutate(put()).await.unwrap_err();
    assert!(error.to_string().contains("is not open on any server"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn failing_lookups_are_not_repeated_for_each_row() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers
        .script(|call, _| is_meta_scan(call).then(|| Reply::exception("CallQueueTooBigException")));
    let puts = rows('a'..='z').map(|row| Put::new(row).cell("d", "q", "1").into());
    let outcomes = table.mutate_many(puts.collect()).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!(servers.count(is_multi), 0);
    let lookups = servers.count(is_meta_scan);
    assert!(lookups < 100, "{lookups} lookups for 2,600 rows in 60 s");
}
