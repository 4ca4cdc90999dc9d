//! Splits, merges and moves of regions while they are read and written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hbase_client::{Admin, Error, Family, Scan, TableSpec};

use crate::support::DEADLINE;
use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, collect, key, read, write};

/// Waits until one more scan has ended: otherwise a single scan may take as long as all changes.
async fn await_scan(scans: &AtomicU32) {
    let (before, started) = (scans.load(Ordering::Relaxed), Instant::now());
    while scans.load(Ordering::Relaxed) == before {
        assert!(started.elapsed() < DEADLINE, "no scan ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Moves every region of the table to the next server.
async fn move_all(admin: &Admin, table: &str) {
    let regions = admin.regions(table).await.unwrap();
    // This table has regions on several servers.
    let mut servers: Vec<_> =
        admin.regions("whereabouts").await.unwrap().into_iter().filter_map(|r| r.server).collect();
    servers.sort();
    servers.dedup();
    assert!(servers.len() > 1, "only one server: {servers:?}");
    for region in &regions {
        let at = region.server.as_ref().and_then(|at| servers.iter().position(|s| s == at));
        let next = &servers[at.map_or(0, |at| (at + 1) % servers.len())];
        // A region that was split meanwhile cannot be moved.
        if let Err(error) = admin.move_to(region, next).await {
            println!("not moved: {error}");
            assert!(!matches!(error, Error::Input(_)), "{error}");
        }
    }
}

async fn split_all(admin: &Admin, table: &str, rows: &[u32]) {
    for &row in rows {
        let at = key(row);
        let regions = admin.regions(table).await.unwrap();
        let region = regions.iter().rev().find(|r| &r.start[..] <= at.as_bytes()).unwrap();
        if let Err(error) = admin.split(region, at).await {
            println!("not split at {row}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_and_writes_continue_while_regions_split_and_move() {
    const ROWS: u32 = 60_000;
    let hbase = HBase::shared();
    hbase.table("whereabouts", &["1", "2", "3", "4", "5"]).await;
    let (client, table) = hbase.table("moving", &["00020000", "00040000"]).await;
    write(&table, 0..ROWS).await;
    let admin = client.admin();
    let before = admin.regions("moving").await.unwrap().len();
    let scans = Arc::new(AtomicU32::new(0));
    let ended = scans.clone();
    let changing = tokio::spawn(async move {
        for round in 0..3 {
            move_all(&admin, "moving").await;
            split_all(&admin, "moving", &[5_000 + round * 1_000, 30_000 + round * 1_000]).await;
            await_scan(&ended).await;
        }
        admin.regions("moving").await.unwrap().len()
    });
    let mut written = ROWS;
    while !changing.is_finished() {
        let rows = table.scan(Scan::range("", key(ROWS)).rows_per_response(500));
        check_exact(&collect(rows).await.unwrap(), 0..ROWS);
        write(&table, written..written + 1_000).await;
        written += 1_000;
        scans.fetch_add(1, Ordering::Relaxed);
    }
    let (after, scans) = (changing.await.unwrap(), scans.load(Ordering::Relaxed));
    println!("{scans} scans, {written} rows, {before} regions, then {after}");
    assert!(scans >= 2 && after > before, "{scans} scans, {before} regions, then {after}");
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..written);
}

#[tokio::test]
async fn open_scan_survives_the_merge_of_its_region() {
    let (client, table) = HBase::shared().table("merged-under", &["00010000"]).await;
    write(&table, 0..20_000).await;
    let mut rows = table.scan(Scan::all().rows_per_response(100).responses(2 << 20, 1));
    let mut found = Vec::new();
    for _ in 0..1_000 {
        found.push(rows.next().await.unwrap().unwrap());
    }
    let regions = client.admin().regions("merged-under").await.unwrap();
    client.admin().merge(&regions[0], &regions[1]).await.unwrap();
    found.extend(collect(rows).await.unwrap());
    check_exact(&found, 0..20_000);
}

#[tokio::test]
async fn regions_with_binary_start_rows_are_moved_and_merged() {
    let hbase = HBase::shared();
    let (client, _) = hbase.table("whereabouts-of-bytes", &["1", "2", "3", "4", "5"]).await;
    let admin = client.admin();
    let splits = [&[0x80, b'.'][..], &[0xff, 0x00, b','][..]].map(Bytes::from_static);
    admin.create(&TableSpec::new("bytes").family(Family::new("d")), &splits).await.unwrap();
    let regions = admin.regions("bytes").await.unwrap();
    let elsewhere = admin.regions("whereabouts-of-bytes").await.unwrap().into_iter();
    let elsewhere = elsewhere
        .filter_map(|region| region.server)
        .find(|s| Some(s) != regions[1].server.as_ref());
    admin.move_to(&regions[1], &elsewhere.expect("there is another server")).await.unwrap();
    admin.merge(&regions[1], &regions[2]).await.unwrap();
    let merged = admin.regions("bytes").await.unwrap();
    let starts: Vec<_> = merged.iter().map(|region| &region.start[..]).collect();
    assert_eq!(starts, [&[][..], &[0x80, b'.'][..]]);
}

#[tokio::test]
async fn regions_that_are_not_adjacent_are_not_merged() {
    let (client, _) = HBase::shared().table("apart", &["b", "c"]).await;
    let admin = client.admin();
    let regions = admin.regions("apart").await.unwrap();
    let error = admin.merge(&regions[0], &regions[2]).await.unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(admin.regions("apart").await.unwrap().len(), 3);
}
