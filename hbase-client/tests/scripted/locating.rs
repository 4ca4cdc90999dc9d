//! Finding regions, and finding them again.

use std::time::Duration;

use hbase_client::{Error, Get, Put, Table};
use tokio::task::JoinSet;

use crate::support::fake::{FakeRegion, Model, Reply, Servers};
use crate::{check_all, is_multi, is_of_meta, read_all};

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
async fn hundreds_who_look_for_one_region_ask_once() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    get_all(&table, rows('a'..='z')).await;
    // Backwards to the region, and forward to what follows.
    assert_eq!(servers.count(is_of_meta), 2);
    servers.model(|model| model.move_region(1, "s1:1"));
    get_all(&table, rows('h'..='o')).await;
    assert_eq!(servers.count(is_of_meta), 3);
    // The others stayed known.
    get_all(&table, rows('a'..='z')).await;
    assert_eq!(servers.count(is_of_meta), 3);
}

/// Servers with rows, the first region of which was split into daughters on these servers.
fn split(daughters: [&str; 2]) -> Servers {
    let servers = Servers::new();
    servers.model(|model| {
        model.fill();
        model.regions[0].is_parent = true;
        for ((start, end), server) in [("", "d"), ("d", "h")].into_iter().zip(daughters) {
            model.regions.push(FakeRegion::new(start, end, 2, server));
        }
    });
    servers
}

#[tokio::test(start_paused = true)]
async fn split_parent_that_is_still_listed_is_passed_over() {
    let servers = split(["s2:1", "s3:1"]);
    let table = servers.table().await;
    get_all(&table, rows('a'..='z')).await;
    let found = read_all(&table).await.unwrap();
    servers.model(|model| check_all(&found, model));
}

#[tokio::test(start_paused = true)]
async fn old_answer_of_meta_does_not_displace_later_regions() {
    let servers = split(["s2:1", "s3:1"]);
    let table = servers.table().await;
    get_all(&table, rows('a'..='z')).await;
    // One daughter moves, and who looks for it is told of the parent once, as it was before the split.
    servers.model(|model| model.move_region(4, "s1:1"));
    let mut is_old = true;
    servers.script(move |heard, model| {
        let hits = is_of_meta(heard) && std::mem::take(&mut is_old);
        hits.then(|| {
            let now = model.regions.clone();
            model.regions.truncate(3);
            model.regions[0].is_parent = false;
            let reply = model.reply(heard);
            model.regions = now;
            reply
        })
    });
    let (asked, called) = (servers.count(is_of_meta), servers.with(|fake| fake.heard.len()));
    assert!(table.get(Get::new("e00")).await.unwrap().is_some());
    // The old answer and a later one, each for the region alone.
    assert_eq!(servers.count(is_of_meta) - asked, 2);
    // The other daughter has stayed where it is known: the parent's server is not asked for its rows.
    get_all(&table, rows('a'..='c')).await;
    assert_eq!(servers.count(is_of_meta) - asked, 2);
    let to_parent = servers.with(|fake| {
        let later = fake.heard[called..].iter().filter(|heard| is_multi(heard));
        later.filter(|heard| heard.param.windows(10).any(|part| part == b"t,,1.encod")).count()
    });
    assert_eq!(to_parent, 1, "the one that was told of it");
}

#[tokio::test(start_paused = true)]
async fn daughter_without_a_server_is_waited_for() {
    let servers = split(["s2:1", "s2:1"]);
    servers.model(|model| model.regions[3..].iter_mut().for_each(|region| region.listed.clear()));
    let table = servers.table().await;
    let opening = servers.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        opening.model(|model| (3..5).for_each(|index| model.move_region(index, "s2:1")));
    });
    let begun = tokio::time::Instant::now();
    get_all(&table, rows('a'..='b')).await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(3) && waited < Duration::from_secs(6), "{waited:?}");
    let found = read_all(&table).await.unwrap();
    servers.model(|model| check_all(&found, model));
}

#[tokio::test(start_paused = true)]
async fn region_without_a_server_holds_up_its_own_rows_alone() {
    let servers = Servers::new();
    servers.model(|model| model.regions[0].listed.clear());
    let table = servers.table().await;
    let opening = servers.clone();
    let others = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let others = opening.model(|model| model.rows.len());
        tokio::time::sleep(Duration::from_secs(29)).await;
        opening.model(|model| model.regions[0].listed = "s1:1".to_owned());
        others
    });
    // A client that knows nothing yet, and looks for those that are nowhere first.
    let puts = rows('a'..='z').map(|row| Put::new(row).cell("d", "q", "1").into());
    assert!(table.mutate_many(puts.collect()).await.iter().all(Result::is_ok));
    assert_eq!(others.await.unwrap(), 1_900, "of 2,600, of which 700 wait");
    let asked = servers.count(is_of_meta);
    assert!(asked < 100, "{asked} look-ups");
}

#[tokio::test(start_paused = true)]
async fn missing_table_and_disabled_table_are_told_apart_from_a_hole() {
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
    assert!(error.to_string().contains("no server has the region of table t"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn server_of_meta_may_go_as_well() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    let mut failures = 0;
    servers.script(move |heard, _| {
        if !is_of_meta(heard) {
            return None;
        }
        failures += 1;
        match failures {
            1 => Some(Reply::Close),
            2 => Some(Reply::exception("org.apache.hadoop.hbase.NotServingRegionException")),
            3 => Some(Reply::Never),
            4 => Some(Reply::exception("org.apache.hadoop.hbase.CallQueueTooBigException")),
            _ => None,
        }
    });
    get_all(&table, rows('a'..='z')).await;
}

#[tokio::test(start_paused = true)]
async fn lookups_that_fail_do_not_become_a_storm() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|heard, _| {
        let class = "org.apache.hadoop.hbase.CallQueueTooBigException";
        is_of_meta(heard).then(|| Reply::exception(class))
    });
    let puts = rows('a'..='z').map(|row| Put::new(row).cell("d", "q", "1").into());
    let outcomes = table.mutate_many(puts.collect()).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!(servers.count(is_multi), 0);
    let asked = servers.count(is_of_meta);
    assert!(asked < 100, "{asked} look-ups for 2,600 rows in 60 s");
}
