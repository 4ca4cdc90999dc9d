//! Faults of a real HBase of six processes while two workers attribute and exports are read: servers are killed and
//! stopped, regions are moved, split and merged, and responses are lost. In the end each row exists once. Some faults
//! are part of every run; `ADTRAIL_HBASE_FAULTS=all` adds the others, and `=faults-meta*20` repeats one of them 20
//! times.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hbase_client::{Client, RegionStatus};
use testbed::adtrail::Adtrail;
use testbed::exports::Workload;
use testbed::faults::{Calls, ECONNRESET, Faults};
use testbed::hbase::processes::Processes;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{SetOnDrop, eventually, hbase, rows, run_ok};
use tokio::runtime::Runtime;

const PARTITIONS: i32 = 6;
const TABLES: [&str; 4] = ["events", "touches", "activations", "effects"];

static WORKLOAD: Workload =
    Workload::new(|| traffic::redelivered(&traffic::records(41, 1_500), 41));

/// A cluster and a client.
struct Fixture {
    processes: Processes,
    client: Client,
    runtime: Runtime,
}

/// A fault, called with the prefix of the tables and the fault injection of the workers' system calls.
type Fault = fn(&mut Fixture, &str, &Faults);

impl Fixture {
    fn start() -> Self {
        let processes = Processes::start();
        let runtime = Runtime::new().expect("the runtime starts");
        let client = runtime.block_on(processes.client());
        Self { processes, client, runtime }
    }

    fn regions(&self, table: &str) -> Vec<RegionStatus> {
        self.runtime.block_on(self.client.admin().regions(table)).expect("the regions are listed")
    }

    /// Returns the number of the server that has a table's first region.
    fn server_of(&self, table: &str) -> usize {
        eventually("the region is assigned", || {
            let server = self.regions(table)[0].server.clone();
            server.map(|server| self.processes.server_of(server.port)).ok_or("not assigned")
        })
    }

    fn kill_and_start(&mut self, server: usize) {
        self.processes.kill_server(server);
        thread::sleep(Duration::from_secs(2));
        self.processes.start_server(server);
    }

    /// Like [`Fixture::check`], on a thread with this name, which a failing comparison prints.
    fn check_as(&mut self, name: &str, fault: Fault) {
        thread::scope(|scope| {
            let named = thread::Builder::new().name(name.to_owned());
            let checked =
                named.spawn_scoped(scope, || self.check(name, fault)).expect("the thread starts");
            checked.join().unwrap_or_else(|_| panic!("{name} failed"));
        });
    }

    /// Injects a fault under load, and checks that every row exists once in the end.
    fn check(&mut self, name: &str, fault: Fault) {
        let servers = self.processes.addresses();
        let site = hbase::on(&servers, name, PARTITIONS, traffic::SETTINGS)
            .set("ingest.batch_records_max", "50");
        run_ok(&mut site.command(&["hbase", "init"]), b"");
        let (first_third, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 3);
        traffic::produce(&site.topics, first_third);
        let faults = Faults::of(&site).with_ports(self.processes.ports());
        let first = faults.start_role(&site, "attribute");
        first.await_some_read();
        let workers = [first, faults.start_role(&site, "attribute")];
        let exporter = site.start_role("export");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                rest.chunks(rest.len().div_ceil(6)).for_each(|chunk| {
                    traffic::produce(&site.topics, chunk);
                    thread::sleep(Duration::from_millis(500));
                });
            });
            let reading = scope.spawn(|| read_until(&is_over, &exporter));
            let over = SetOnDrop(&is_over);
            fault(self, name, &faults);
            drop(over);
            reading.join().expect("no event is exported twice");
        });
        eventually("the group has read everything", || {
            match Kafka::shared().group_lag(&site.group(), &site.topics.all()) {
                0 => Ok(()),
                lag => Err(format!("lag {lag}: {}", workers[0].log())),
            }
        });
        exporter.await_readiness(200, "");
        WORKLOAD.check(&site, &exporter);
        for process in workers.into_iter().chain([exporter]) {
            process.stop();
        }
    }
}

/// Downloads until the fault is over. A complete download has no event twice with the same time; an event whose time is
/// being corrected may appear with both times. After the fault a download must succeed.
fn read_until(is_over: &AtomicBool, exporter: &Adtrail) {
    let mut apps = APPS.iter().cycle();
    let mut download = || {
        let app = apps.next().expect("the iterator never ends");
        let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
        let reply = exporter.get(&path).ok().filter(|reply| reply.status == 200 && reply.is_whole);
        if let Some(reply) = &reply {
            check_once(&reply.body);
        }
        reply.is_some()
    };
    while !is_over.load(Ordering::Relaxed) {
        download();
        thread::sleep(Duration::from_millis(500));
    }
    eventually("a download is complete", || if download() { Ok(()) } else { Err("not yet") });
}

fn check_once(csv: &[u8]) {
    let mut shown = HashSet::new();
    for row in rows::parse(csv) {
        let (id, time) = (row["event_id"].clone(), row["event_time"].clone());
        assert!(shown.insert((id, time)), "exported twice: {row:?}");
    }
}

fn a_server_is_killed(fixture: &mut Fixture, name: &str, _: &Faults) {
    let server = fixture.server_of(&format!("{name}_events"));
    fixture.kill_and_start(server);
}

fn the_server_of_meta_is_killed(fixture: &mut Fixture, _: &str, _: &Faults) {
    let server = fixture.server_of("hbase:meta");
    fixture.kill_and_start(server);
}

fn all_servers_are_killed(fixture: &mut Fixture, _: &str, _: &Faults) {
    (0..3).for_each(|server| fixture.processes.kill_server(server));
    thread::sleep(Duration::from_secs(2));
    (0..3).for_each(|server| fixture.processes.start_server(server));
}

/// No process needs the master, not even those that start meanwhile.
fn the_master_is_killed(fixture: &mut Fixture, name: &str, _: &Faults) {
    // Another group on topics of its own, over the same tables.
    let more = Site::new(Kafka::shared(), &format!("{name}.more"), 1, traffic::SETTINGS);
    let more =
        hbase::in_hbase(more, &fixture.processes.addresses(), name).set("store.partitions", "8");
    fixture.processes.kill_master();
    thread::sleep(Duration::from_secs(5));
    let is_whole = |app| more.download(app, FROM, TO, &[]).ends_with(b"\n");
    assert!(APPS.into_iter().all(is_whole));
    for role in ["export", "attribute"] {
        let started = more.start_role(role);
        assert!(
            started.log().contains("the table descriptors cannot be read"),
            "{}",
            started.log()
        );
        if role == "export" {
            let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}", APPS[0]);
            let reply = started.get(&path).expect("adtrail responds");
            assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
        }
        started.stop();
    }
    fixture.processes.start_master();
}

fn a_server_stalls(fixture: &mut Fixture, name: &str, _: &Faults) {
    let server = fixture.server_of(&format!("{name}_events"));
    fixture.processes.stop_server(server);
    thread::sleep(Duration::from_secs(10));
    fixture.processes.continue_server(server);
    // The server detects that its session has expired, ends, and is started again, as a supervisor would do.
    thread::sleep(Duration::from_secs(2));
    fixture.processes.start_server_again(server);
}

fn regions_move_split_and_merge(fixture: &mut Fixture, name: &str, _: &Faults) {
    let admin = fixture.client.admin();
    for table in TABLES {
        let table = format!("{name}_{table}");
        // Servers come and go meanwhile, so any of these may fail at first.
        eventually("a region is moved", || {
            let regions = fixture.regions(&table);
            let target = regions.last().and_then(|region| region.server.clone());
            let target = target.ok_or("not assigned".to_owned())?;
            fixture.runtime.block_on(admin.move_to(&regions[0], &target)).map_err(|e| e.to_string())
        });
        eventually("a region is split", || {
            let regions = fixture.regions(&table);
            let at = [&regions[1].start[..], &[1]].concat();
            fixture.runtime.block_on(admin.split(&regions[1], at)).map_err(|e| e.to_string())
        });
        eventually("regions are merged", || {
            let regions = fixture.regions(&table);
            let [.., left, right] = &regions[..] else { return Err("one region".to_owned()) };
            fixture.runtime.block_on(admin.merge(left, right)).map_err(|e| e.to_string())
        });
    }
}

/// HBase executes a request, and the connection breaks before the response arrives.
fn responses_are_lost(_: &mut Fixture, _: &str, faults: &Faults) {
    let mut next = faults.failed();
    let lost = eventually("responses are lost, a few at a time", || {
        let lost = faults.failed();
        if lost >= next {
            faults.fail(Calls::Responses, ECONNRESET, 10, 3);
            next = lost + 3;
        }
        thread::sleep(Duration::from_millis(200));
        if lost >= 20 { Ok(lost) } else { Err(lost) }
    });
    faults.mend();
    println!("{lost} responses were lost");
}

fn tables_are_disabled(fixture: &mut Fixture, name: &str, _: &Faults) {
    let admin = fixture.client.admin();
    for table in TABLES {
        let table = format!("{name}_{table}");
        fixture.runtime.block_on(admin.disable(&table)).expect("the table is disabled");
        thread::sleep(Duration::from_millis(1_500));
        fixture.runtime.block_on(admin.enable(&table)).expect("the table is enabled");
    }
}

/// Faults that are part of every run.
const ALWAYS: [(&str, Fault); 3] = [
    ("faults-server", a_server_is_killed),
    ("faults-regions", regions_move_split_and_merge),
    ("faults-responses", responses_are_lost),
];
/// Faults of a run with `ADTRAIL_HBASE_FAULTS=all`.
const ON_REQUEST: [(&str, Fault); 5] = [
    ("faults-tables", tables_are_disabled),
    ("faults-meta", the_server_of_meta_is_killed),
    ("faults-master", the_master_is_killed),
    ("faults-still", a_server_stalls),
    ("faults-all", all_servers_are_killed),
];

#[test]
fn each_row_exists_once_after_any_fault_of_hbase() {
    let mut fixture = Fixture::start();
    let selected = std::env::var("ADTRAIL_HBASE_FAULTS").unwrap_or_default();
    if let Some((name, rounds)) = selected.split_once('*') {
        let all: Vec<_> = ALWAYS.iter().chain(&ON_REQUEST).collect();
        let (_, fault) = all.iter().find(|(known, _)| *known == name).expect("the fault exists");
        for round in 0..rounds.parse::<u32>().expect("it is a number") {
            println!("{name} {round}");
            fixture.check_as(&format!("{name}-{round}"), *fault);
        }
        return;
    }
    let more = if selected == "all" { &ON_REQUEST[..] } else { &[] };
    for (name, fault) in ALWAYS.iter().chain(more) {
        println!("{name}");
        fixture.check_as(name, *fault);
    }
}
