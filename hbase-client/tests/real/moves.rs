//! Regions that are split and moved while they are read and written.

use std::time::Duration;

use hbase_client::{Admin, Scan};

use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, gather, key, read, write};

/// Moves every region of the table to the next server.
async fn move_all(admin: &Admin, table: &str) {
    let regions = admin.regions(table).await.unwrap();
    // Tables of others are on all of them.
    let mut servers: Vec<_> =
        admin.regions("whereabouts").await.unwrap().into_iter().filter_map(|r| r.server).collect();
    servers.sort();
    servers.dedup();
    assert!(servers.len() > 1, "one server alone: {servers:?}");
    for region in &regions {
        let at = region.server.as_ref().and_then(|at| servers.iter().position(|s| s == at));
        let next = &servers[at.map_or(0, |at| (at + 1) % servers.len())];
        // A region that was split meanwhile can not be moved.
        let _ = admin.move_to(region, next).await;
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
async fn scans_and_writes_go_on_while_regions_split_and_move() {
    const ROWS: u32 = 60_000;
    let hbase = HBase::shared();
    hbase.table("whereabouts", &["1", "2", "3", "4", "5"]).await;
    let (client, table) = hbase.table("moving", &["00020000", "00040000"]).await;
    write(&table, 0..ROWS).await;
    let admin = client.admin();
    let before = admin.regions("moving").await.unwrap().len();
    let disturbing = tokio::spawn(async move {
        for round in 0..3 {
            move_all(&admin, "moving").await;
            split_all(&admin, "moving", &[5_000 + round * 1_000, 30_000 + round * 1_000]).await;
        }
        admin.regions("moving").await.unwrap().len()
    });
    let (mut scans, mut written) = (0, ROWS);
    while !disturbing.is_finished() {
        let rows = table.scan(Scan::range("", key(ROWS)).rows_per_answer(500));
        check_exact(&gather(rows).await.unwrap(), 0..ROWS);
        write(&table, written..written + 1_000).await;
        (scans, written) = (scans + 1, written + 1_000);
    }
    let after = disturbing.await.unwrap();
    println!("{scans} scans, {written} rows, {before} regions, then {after}");
    assert!(scans >= 2 && after > before, "{scans} scans, {before} regions, then {after}");
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..written);
}

#[tokio::test]
async fn scan_stands_still_while_its_region_splits_under_it() {
    let (client, table) = HBase::shared().table("split-under", &[]).await;
    write(&table, 0..20_000).await;
    let mut rows = table.scan(Scan::all().rows_per_answer(100).answers(2 << 20, 1));
    let mut found = Vec::new();
    for _ in 0..1_000 {
        found.push(rows.next().await.unwrap().unwrap());
    }
    split_all(&client.admin(), "split-under", &[10_000]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    while let Some(row) = rows.next().await {
        found.push(row.unwrap());
    }
    check_exact(&found, 0..20_000);
    assert_eq!(client.admin().regions("split-under").await.unwrap().len(), 2);
}
