//! Parts of a real HBase of six processes are killed, stopped, moved, split and merged under load, and answers of
//! theirs are lost, while two workers attribute and exports are read: in the end there is each row once. Some of the
//! faults are in every run; `ADTRAIL_HBASE_FAULTS=all` has the others too, and `=faults-meta*20` one of them so often.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hbase_client::{Client, RegionStatus};
use testbed::adtrail::Adtrail;
use testbed::exports::{Workload, check_equal, downloads};
use testbed::faults::{Calls, ECONNRESET, Faults};
use testbed::hbase::processes::Processes;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{eventually, hbase};
use tokio::runtime::Runtime;

const PARTITIONS: i32 = 6;
const TABLES: [&str; 4] = ["events", "touches", "activations", "effects"];

static WORKLOAD: Workload =
    Workload::new(|| traffic::redelivered(&traffic::records(41, 1_500), 41));

/// A cluster, and a way to ask it.
struct Bed {
    processes: Processes,
    client: Client,
    runtime: Runtime,
}

/// With the names that the tables begin with, and what the workers' calls can be done to.
type Fault = fn(&mut Bed, &str, &Faults);

impl Bed {
    fn start() -> Self {
        let processes = Processes::start();
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(processes.client());
        Self { processes, client, runtime }
    }

    fn regions(&self, table: &str) -> Vec<RegionStatus> {
        self.runtime.block_on(self.client.admin().regions(table)).expect("the regions")
    }

    /// The number of the server that has a table's first region.
    fn server_of(&self, table: &str) -> usize {
        eventually("the region is somewhere", || {
            let server = self.regions(table)[0].server.clone();
            server.map(|server| self.processes.server_of(server.port)).ok_or("nowhere")
        })
    }

    fn kill_and_start(&mut self, server: usize) {
        self.processes.kill_server(server);
        thread::sleep(Duration::from_secs(2));
        self.processes.start_server(server);
    }

    /// As [`Bed::check`], on a thread of that name: what is compared is printed with it.
    fn check_as(&mut self, name: &str, fault: Fault) {
        thread::scope(|scope| {
            let named = thread::Builder::new().name(name.to_owned());
            let checked = named.spawn_scoped(scope, || self.check(name, fault)).expect("a thread");
            checked.join().unwrap_or_else(|_| panic!("{name} failed"));
        });
    }

    /// All that was produced is there once, whatever happened on the way.
    fn check(&mut self, name: &str, fault: Fault) {
        let servers = self.processes.addresses();
        let site = hbase::on(&servers, name, PARTITIONS, traffic::SETTINGS)
            .set("ingest.batch_records_max", "50");
        testbed::run_ok(&mut site.command(&["hbase", "init"]), b"");
        let (some, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 3);
        traffic::produce(&site.topics, some);
        let faults = Faults::of(&site).with_ports(self.processes.ports());
        let first = faults.start_role(&site, "attribute");
        first.await_some_read();
        let workers = [first, faults.start_role(&site, "attribute")];
        let exporter = site.start_role("export");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                rest.chunks(rest.len().div_ceil(6)).for_each(|some| {
                    traffic::produce(&site.topics, some);
                    thread::sleep(Duration::from_millis(500));
                });
            });
            let reading = scope.spawn(|| read_until(&is_over, &exporter));
            let over = Over(&is_over);
            fault(self, name, &faults);
            drop(over);
            reading.join().expect("nothing was shown twice");
        });
        eventually("the group has read everything", || {
            match Kafka::shared().group_lag(&site.group(), &site.topics.all()) {
                0 => Ok(()),
                lag => Err(format!("{lag} records are left: {}", workers[0].log())),
            }
        });
        exporter.await_readiness(200, "");
        check_equal(&downloads(&site, &exporter), WORKLOAD.expected());
        for one in workers.into_iter().chain([exporter]) {
            let (status, log) = one.terminate();
            assert!(status.success(), "{log}");
        }
    }
}

/// Says so once it is dropped: a fault that panics would else be waited for without an end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever comes whole has no event twice at one time; one whose time is being corrected may be at both. Of what
/// is asked for once it is over some does.
fn read_until(is_over: &AtomicBool, exporter: &Adtrail) {
    let mut apps = APPS.iter().cycle();
    let mut comes_whole = || {
        let app = apps.next().expect("one after the other");
        let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
        let reply = exporter.get(&path).ok().filter(|reply| reply.status == 200 && reply.is_whole);
        if let Some(reply) = &reply {
            check_once(&reply.body);
        }
        reply.is_some()
    };
    while !is_over.load(Ordering::Relaxed) {
        comes_whole();
        thread::sleep(Duration::from_millis(500));
    }
    eventually("something comes whole", || if comes_whole() { Ok(()) } else { Err("nothing yet") });
}

fn check_once(csv: &[u8]) {
    let mut shown = HashSet::new();
    for row in testbed::rows::parse(csv) {
        let (id, time) = (row["event_id"].clone(), row["event_time"].clone());
        assert!(shown.insert((id, time)), "shown twice: {row:?}");
    }
}

fn a_server_is_killed(bed: &mut Bed, name: &str, _: &Faults) {
    let server = bed.server_of(&format!("{name}_events"));
    bed.kill_and_start(server);
}

fn the_server_of_meta_is_killed(bed: &mut Bed, _: &str, _: &Faults) {
    let server = bed.server_of("hbase:meta");
    bed.kill_and_start(server);
}

fn all_servers_are_killed(bed: &mut Bed, _: &str, _: &Faults) {
    (0..3).for_each(|server| bed.processes.kill_server(server));
    thread::sleep(Duration::from_secs(2));
    (0..3).for_each(|server| bed.processes.start_server(server));
}

/// Nobody needs it, those who start meanwhile included.
fn the_master_is_killed(bed: &mut Bed, name: &str, _: &Faults) {
    // Another group on topics of its own, over the same tables.
    let more = Site::new(Kafka::shared(), &format!("{name}.more"), 1, traffic::SETTINGS);
    let more = hbase::in_hbase(more, &bed.processes.addresses(), name)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    bed.processes.kill_master();
    thread::sleep(Duration::from_secs(5));
    let whole = |app| more.download(app, FROM, TO, &[]).ends_with(b"\n");
    assert!(APPS.into_iter().all(whole));
    for role in ["export", "attribute"] {
        let started = more.start_role(role);
        assert!(
            started.log().contains("the settings of the tables cannot be read"),
            "{}",
            started.log()
        );
        if role == "export" {
            let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}", APPS[0]);
            let reply = started.get(&path).expect("an answer");
            assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
        }
        let (status, log) = started.terminate();
        assert!(status.success(), "{log}");
    }
    bed.processes.start_master();
}

fn a_server_stands_still(bed: &mut Bed, name: &str, _: &Faults) {
    let server = bed.server_of(&format!("{name}_events"));
    bed.processes.stop_server(server);
    thread::sleep(Duration::from_secs(10));
    bed.processes.continue_server(server);
    // It finds that it was given up, ends, and is started again by whoever looks after it.
    thread::sleep(Duration::from_secs(2));
    bed.processes.start_server_again(server);
}

fn regions_move_split_and_merge(bed: &mut Bed, name: &str, _: &Faults) {
    let admin = bed.client.admin();
    for table in TABLES {
        let table = format!("{name}_{table}");
        // Servers come and go meanwhile, so that each may not work the first time.
        eventually("it moves", || {
            let regions = bed.regions(&table);
            let target = regions.last().and_then(|region| region.server.clone());
            let target = target.ok_or("nowhere".to_owned())?;
            bed.runtime.block_on(admin.move_to(&regions[0], &target)).map_err(|e| e.to_string())
        });
        eventually("it is split", || {
            let regions = bed.regions(&table);
            let at = [&regions[1].start[..], &[1]].concat();
            bed.runtime.block_on(admin.split(&regions[1], at)).map_err(|e| e.to_string())
        });
        eventually("they are merged", || {
            let regions = bed.regions(&table);
            let [.., one, next] = &regions[..] else { return Err("one region".to_owned()) };
            bed.runtime.block_on(admin.merge(one, next)).map_err(|e| e.to_string())
        });
    }
}

/// What was asked is done, and nobody is told: the connection breaks where the answer comes.
fn answers_are_lost(_: &mut Bed, _: &str, faults: &Faults) {
    let mut next = faults.failed();
    let lost = eventually("answers are lost, some at a time", || {
        let lost = faults.failed();
        if lost >= next {
            faults.fail(Calls::Answers, ECONNRESET, 10, 3);
            next = lost + 3;
        }
        thread::sleep(Duration::from_millis(200));
        if lost >= 20 { Ok(lost) } else { Err(lost) }
    });
    faults.mend();
    println!("{lost} answers were lost");
}

fn tables_are_disabled(bed: &mut Bed, name: &str, _: &Faults) {
    let admin = bed.client.admin();
    for table in TABLES {
        let table = format!("{name}_{table}");
        bed.runtime.block_on(admin.disable(&table)).expect("it is disabled");
        thread::sleep(Duration::from_millis(1_500));
        bed.runtime.block_on(admin.enable(&table)).expect("it is enabled");
    }
}

/// In every run.
const SOME: [(&str, Fault); 3] = [
    ("faults-server", a_server_is_killed),
    ("faults-regions", regions_move_split_and_merge),
    ("faults-answers", answers_are_lost),
];
const MORE: [(&str, Fault); 5] = [
    ("faults-tables", tables_are_disabled),
    ("faults-meta", the_server_of_meta_is_killed),
    ("faults-master", the_master_is_killed),
    ("faults-still", a_server_stands_still),
    ("faults-all", all_servers_are_killed),
];

#[test]
fn each_row_is_there_once_whatever_part_of_hbase_fails() {
    let mut bed = Bed::start();
    let chosen = std::env::var("ADTRAIL_HBASE_FAULTS").unwrap_or_default();
    if let Some((name, rounds)) = chosen.split_once('*') {
        let all: Vec<_> = SOME.iter().chain(&MORE).collect();
        let (_, fault) = all.iter().find(|(known, _)| *known == name).expect("a fault");
        for round in 0..rounds.parse::<u32>().expect("a number") {
            println!("{name} {round}");
            bed.check_as(&format!("{name}-{round}"), *fault);
        }
        return;
    }
    let more = if chosen == "all" { &MORE[..] } else { &[] };
    for (name, fault) in SOME.iter().chain(more) {
        println!("{name}");
        bed.check_as(name, *fault);
    }
}
