//! A real HBase of six processes, of which some are killed while rows are written and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::hbase::create;
use crate::support::processes::Processes;
use crate::support::rows::{check_exact, collect, key, read, write};
use hbase_client::{Client, Scan, Table};
use tokio::time::Instant;

const SPLITS: [&str; 5] = ["00020000", "00040000", "00060000", "00080000", "00100000"];

/// A task that writes rows, one batch after the other, until it is stopped.
struct Writing {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<u32>,
}

impl Writing {
    fn start(table: Table, from: u32) -> Self {
        let (stop, acknowledged) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(from)));
        let (stopped, count) = (stop.clone(), acknowledged.clone());
        let task = tokio::spawn(async move {
            let mut next = from;
            while !stopped.load(Ordering::Relaxed) {
                // `spread` distributes the rows over all regions.
                write(&table, (next..next + 1_000).map(spread)).await;
                next += 1_000;
                count.store(next, Ordering::Relaxed);
            }
            next
        });
        Self { stop, acknowledged, task }
    }

    async fn end(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("all rows are written")
    }

    /// Waits until this number of further rows has been written.
    async fn await_more(&self, rows: u32) {
        let target = self.acknowledged.load(Ordering::Relaxed) + rows;
        let started = Instant::now();
        while self.acknowledged.load(Ordering::Relaxed) < target {
            assert!(!self.task.is_finished(), "writing ended");
            assert!(started.elapsed() < crate::support::DEADLINE, "writing does not progress");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Maps row numbers one-to-one to numbers spread over all regions.
fn spread(row: u32) -> u32 {
    const SPACE: u64 = 1_000_003;
    (u64::from(row) * 7_919 % SPACE) as u32
}

async fn check_written(table: &Table, rows: u32) {
    let mut expected: Vec<_> = (0..rows).map(spread).collect();
    expected.sort_unstable();
    let found = read(table, Scan::all()).await.expect("all rows are read");
    check_exact(&found, expected.into_iter());
}

/// Kills the server of a region of the table, and returns its index.
async fn kill_server(processes: &mut Processes, client: &Client, table: &str) -> usize {
    let regions = client.admin().regions(table).await.unwrap();
    let server = regions[2].server.clone().expect("the region is open");
    let server = processes.server_of(server.port);
    processes.kill_server(server);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_lost_or_read_twice_when_servers_are_killed() {
    let mut processes = Processes::start();
    let client = processes.client().await;
    create(&client, "written", &SPLITS).await;
    create(&client, "scanned", &SPLITS).await;
    let (written, scanned) = (client.table("written").unwrap(), client.table("scanned").unwrap());
    write(&scanned, 0..120_000).await;

    // A region server is killed during writes and in the middle of a scan.
    let writing = Writing::start(written.clone(), 0);
    let mut rows = scanned.scan(Scan::all().rows_per_response(200));
    let mut found = Vec::new();
    while found.len() < 30_000 {
        found.push(rows.next().await.unwrap().unwrap());
    }
    writing.await_more(2_000).await;
    let killed = kill_server(&mut processes, &client, "scanned").await;
    let started = Instant::now();
    found.extend(collect(rows).await.expect("the scan continues"));
    check_exact(&found, 0..120_000);
    println!("scan ended after {:?}", started.elapsed());
    writing.await_more(20_000).await;
    println!("writing resumed after {:?}", started.elapsed());
    let count = writing.end().await;
    check_written(&written, count).await;

    // Without a master, reads and writes continue, even those of a new client.
    processes.start_server(killed);
    processes.kill_master();
    let writing = Writing::start(written.clone(), count);
    writing.await_more(20_000).await;
    let new = processes.client().await.table("scanned").unwrap();
    check_exact(&read(&new, Scan::range(key(50_000), "")).await.unwrap(), 50_000..120_000);
    let count = writing.end().await;
    check_written(&written, count).await;
    let regions = client.admin().regions("written").await.unwrap();
    assert!(regions.iter().all(|region| region.server.is_some()), "{regions:?}");
    processes.start_master();
    client.admin().list().await.expect("the new master responds");
    println!("{count} rows in {} regions", regions.len());
}
