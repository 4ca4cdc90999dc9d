//! Everything at once, drawn from a seed: faults at any call, regions that move and split, while rows
//! are written, changed under conditions, and scanned.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use hbase_client::{CheckAndMutate, Error, Get, Put, Table};

use crate::support::fake::{FakeRegion, Heard, Model, Reply, Servers};
use crate::{is_multi, read_all};

/// Another number, and another first one, by the variables `HBASE_CLIENT_SEEDS` and `HBASE_CLIENT_SEED`.
const SEEDS: u64 = 150;
const HBASE: &str = "org.apache.hadoop.hbase";
const CLASSES: [&str; 9] = [
    "NotServingRegionException",
    "exceptions.RegionOpeningException",
    "CallQueueTooBigException",
    "RegionTooBusyException",
    "PleaseHoldException",
    "regionserver.RegionServerStoppedException",
    "UnknownScannerException",
    "exceptions.ScannerResetException",
    "exceptions.OutOfOrderScannerNextException",
];

/// One fault in so many calls.
const FAULT_EVERY: u32 = 6;

fn fault(random: &mut fastrand::Rng, heard: &Heard, model: &mut Model) -> Option<Reply> {
    if random.u32(..FAULT_EVERY) != 0 || heard.service == "ClientMetaService" {
        return None;
    }
    let scanner_classes = 3;
    let reply = match random.u32(..9) {
        0 | 1 => {
            let known = CLASSES.len() - if is_multi(heard) { scanner_classes } else { 0 };
            return Some(Reply::exception(&format!("{HBASE}.{}", CLASSES[random.usize(..known)])));
        }
        2 => return Some(Reply::Close),
        3 => {
            model.scanners.forget_all();
            return None;
        }
        4 => {
            disturb(random, model);
            return None;
        }
        // Done, and not, or late, or in part, told of it.
        _ => Box::new(model.reply(heard)),
    };
    Some(match random.u32(..4) {
        0 => Reply::Never,
        1 => Reply::Cut(random.usize(..40), reply),
        2 => Reply::After(Duration::from_secs(random.u64(1..15)), reply),
        _ => Reply::Close,
    })
}

/// Moves a region, or splits it.
fn disturb(random: &mut fastrand::Rng, model: &mut Model) {
    const ROWS: [&str; 8] = ["c", "f05", "j", "k50", "n", "r", "t99", "x"];
    let servers = ["s1:1", "s2:1", "s3:1"];
    let live: Vec<_> =
        (0..model.regions.len()).filter(|&at| !model.regions[at].is_parent).collect();
    let at = live[random.usize(..live.len())];
    let server = servers[random.usize(..3)];
    if random.bool() {
        return model.move_region(at, server);
    }
    let row = ROWS[random.usize(..ROWS.len())];
    let region = model.regions[at].clone();
    if region.start < row && region.contains(row.as_bytes()) {
        model.regions[at].is_parent = true;
        let id = region.id + 1;
        model.regions.push(FakeRegion::new(region.start, row, id, &region.server));
        model.regions.push(FakeRegion::new(row, region.end, id, server));
    }
}

/// Rows between those that are scanned: all that is acknowledged is there in the end.
async fn write(table: Table, writer: usize) -> Vec<String> {
    let mut written = Vec::new();
    for round in 0..8 {
        let letters = ('a'..='z').map(|letter| format!("{letter}50-{writer}-{round}"));
        let rows: Vec<_> = letters.collect();
        let puts = rows.iter().map(|row| Put::new(row.clone()).cell("d", "q", row.clone()).into());
        for (row, outcome) in rows.iter().zip(table.mutate_many(puts.collect()).await) {
            outcome.unwrap();
            written.push(row.clone());
        }
    }
    written
}

#[derive(Debug, Default)]
struct Told {
    made: Vec<String>,
    not_made: Vec<String>,
    in_doubt: usize,
    /// That were not made, or not looked at, because of an error.
    failed: usize,
}

/// Every change has a value of its own, so that it can be told what was made.
async fn change(table: Table, racer: usize) -> Told {
    let mut told = Told::default();
    for round in 0..12 {
        let row = ["counter-a", "p-counter"][round % 2];
        let Ok(found) = table.get(Get::new(row)).await else {
            told.failed += 1;
            continue;
        };
        let found = found.and_then(|row| row.value(b"d", b"n").map(Bytes::copy_from_slice));
        let value = format!("{racer}-{round}");
        let put = Put::new(row).cell("d", "n", value.clone());
        let check = match found {
            None => CheckAndMutate::where_absent("d", "n", put),
            Some(found) => CheckAndMutate::where_equal("d", "n", found, put),
        };
        match table.check_and_mutate(check).await {
            Ok(true) => told.made.push(value),
            Ok(false) => told.not_made.push(value),
            Err(Error::Uncertain { .. }) => told.in_doubt += 1,
            // Whatever else it is, it says that it was not made.
            Err(_) => {
                told.not_made.push(value);
                told.failed += 1;
            }
        }
    }
    told
}

/// All of them at once.
async fn race(table: &Table) -> Told {
    let racers = [0, 1, 2].map(|racer| tokio::spawn(change(table.clone(), racer)));
    let mut told = Told::default();
    for racer in racers {
        let one = racer.await.unwrap();
        told.made.extend(one.made);
        told.not_made.extend(one.not_made);
        told.in_doubt += one.in_doubt;
        told.failed += one.failed;
    }
    told
}

fn check_told(servers: &Servers, told: &Told) {
    let history: HashSet<_> = servers.model(|model| model.history.iter().cloned().collect());
    assert!(told.made.iter().all(|value| history.contains(value.as_bytes())), "not made: {told:?}");
    let lie = told.not_made.iter().find(|value| history.contains(value.as_bytes()));
    assert!(lie.is_none(), "made: {lie:?}");
}

/// The rows that are there from the beginning, each once and whole.
async fn scan(table: Table) {
    for _ in 0..2 {
        let rows = read_all(&table).await.unwrap();
        let keys: Vec<_> = rows.iter().map(|row| row.key()).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "rows that are not in order");
        let kept = rows.iter().filter(|row| row.key().len() == 3);
        assert!(kept.clone().all(|row| row.cells().len() == 3), "a part of a row");
        assert_eq!(kept.count(), 2_600);
    }
}

async fn check(seed: u64) {
    let servers = Servers::new();
    servers.model(Model::fill);
    let mut config = Servers::config();
    // However unlucky.
    config.operation_timeout = Duration::from_secs(36_000);
    config.servers.push("s3:1".parse().unwrap());
    let table = servers.table_of(config).await;
    let mut random = fastrand::Rng::with_seed(seed);
    servers.script(move |heard, model| fault(&mut random, heard, model));
    let writers = [0, 1].map(|writer| tokio::spawn(write(table.clone(), writer)));
    let racing = tokio::spawn({
        let table = table.clone();
        async move { race(&table).await }
    });
    let scans = [(), ()].map(|()| tokio::spawn(scan(table.clone())));
    for scan in scans {
        scan.await.unwrap();
    }
    let told = racing.await.unwrap();
    for writer in writers {
        for row in writer.await.unwrap() {
            let found = servers.model(|model| model.rows.contains_key(row.as_bytes()));
            assert!(found, "{row} was acknowledged");
        }
    }
    check_told(&servers, &told);
    assert!(told.made.len() > 3, "{told:?}");
    assert_eq!(told.failed, 0, "there was time enough");
}

/// With less time than most need: what ends with an error is told as what it is, too.
async fn check_impatient(seed: u64) -> Told {
    let mut random = fastrand::Rng::with_seed(seed);
    let servers = Servers::new();
    let mut config = Servers::config();
    config.operation_timeout = Duration::from_millis(50 << random.u32(..10));
    config.servers.push("s3:1".parse().unwrap());
    let table = servers.table_of(config).await;
    servers.script(move |heard, model| fault(&mut random, heard, model));
    let told = race(&table).await;
    check_told(&servers, &told);
    told
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = number("HBASE_CLIENT_SEED").unwrap_or(0);
    first..first + number("HBASE_CLIENT_SEEDS").unwrap_or(SEEDS)
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_what_is_told_is_true() {
    for seed in seeds() {
        println!("seed {seed}");
        check(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_what_is_told_without_time_is_true() {
    let (mut in_doubt, mut failed) = (0, 0);
    for seed in seeds() {
        println!("seed {seed}");
        let told = check_impatient(seed).await;
        in_doubt += told.in_doubt;
        failed += told.failed;
    }
    println!("{in_doubt} in doubt, {failed} failed");
    assert!(seeds().count() < 100 || (in_doubt > 100 && failed > 0), "{in_doubt}, {failed}");
}
