//! On a real HBase of six processes, which are killed while rows are written and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::hbase::create;
use crate::support::processes::Processes;
use crate::support::rows::{check_exact, gather, key, read, write};
use hbase_client::{Client, Config, Scan, Table};
use tokio::time::Instant;

const SPLITS: [&str; 5] = ["00020000", "00040000", "00060000", "00080000", "00100000"];

/// Rows written one batch after the other, until it is told to stop.
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
                // Over all regions: a hash of its number stands before each key.
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
        self.task.await.expect("all is written")
    }

    /// Until so many more were written as when this was asked.
    async fn await_more(&self, rows: u32) {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + rows;
        let begun = Instant::now();
        while self.acknowledged.load(Ordering::Relaxed) < wanted {
            assert!(!self.task.is_finished(), "writing ended");
            assert!(begun.elapsed() < crate::support::DEADLINE, "nothing is written any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// One to one, and all over the regions.
fn spread(row: u32) -> u32 {
    const SPACE: u64 = 1_000_003;
    (u64::from(row) * 7_919 % SPACE) as u32
}

/// One that waits for as long as a busy machine takes to give a server up and to open its regions elsewhere.
async fn patient(processes: &Processes) -> Client {
    let mut config = Config::new(processes.addresses()).unwrap();
    config.operation_timeout = Duration::from_secs(180);
    Client::connect(config).await.unwrap()
}

async fn check_written(table: &Table, rows: u32) {
    let mut wanted: Vec<_> = (0..rows).map(spread).collect();
    wanted.sort_unstable();
    let found = read(table, Scan::all()).await.expect("all is read");
    check_exact(&found, wanted.into_iter());
}

async fn kill_one(processes: &mut Processes, client: &Client, table: &str) -> usize {
    let regions = client.admin().regions(table).await.unwrap();
    let server = regions[2].server.clone().expect("it is somewhere");
    let server = processes.server_of(server.port);
    processes.kill_server(server);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_lost_or_read_twice_when_servers_are_killed() {
    let mut processes = Processes::start();
    let client = patient(&processes).await;
    create(&client, "written", &SPLITS).await;
    create(&client, "scanned", &SPLITS).await;
    let (written, scanned) = (client.table("written").unwrap(), client.table("scanned").unwrap());
    write(&scanned, 0..120_000).await;

    // A region server, while rows are written and one table is in the middle of a scan.
    let writing = Writing::start(written.clone(), 0);
    let mut rows = scanned.scan(Scan::all().rows_per_answer(200));
    let mut found = Vec::new();
    while found.len() < 30_000 {
        found.push(rows.next().await.unwrap().unwrap());
    }
    writing.await_more(2_000).await;
    let killed = kill_one(&mut processes, &client, "scanned").await;
    let begun = Instant::now();
    found.extend(gather(rows).await.expect("the scan goes on"));
    check_exact(&found, 0..120_000);
    println!("scan over after {:?}", begun.elapsed());
    writing.await_more(20_000).await;
    println!("writing goes on after {:?}", begun.elapsed());
    let count = writing.end().await;
    check_written(&written, count).await;

    // Without a master, reading and writing go on, also of a client that comes new.
    processes.start_server(killed);
    processes.kill_master();
    let writing = Writing::start(written.clone(), count);
    writing.await_more(20_000).await;
    let new = patient(&processes).await.table("scanned").unwrap();
    check_exact(&read(&new, Scan::range(key(50_000), "")).await.unwrap(), 50_000..120_000);
    let count = writing.end().await;
    check_written(&written, count).await;
    let regions = client.admin().regions("written").await.unwrap();
    assert!(regions.iter().all(|region| region.server.is_some()), "{regions:?}");
    processes.start_master();
    client.admin().list().await.expect("the new master answers");
    println!("{count} rows in {} regions", regions.len());
}
