//! Workers of one group and processes that export, over one HBase: what they show is what `adtrail replay`
//! makes of the same events.
#![cfg(test)]

use std::sync::OnceLock;

use testbed::adtrail::Adtrail;
use testbed::crowd::{self, APPS, FROM, Record, TO};
use testbed::exports::{self, Exports, check_equal, downloads};
use testbed::hbase;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::{eventually, run, run_ok};

const PARTITIONS: i32 = 6;

fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| crowd::redelivered(&crowd::records(31, 1_500), 31))
}

fn replayed() -> &'static Exports {
    static REPLAYED: OnceLock<Exports> = OnceLock::new();
    REPLAYED.get_or_init(|| exports::replayed(&crowd::records(31, 1_500)))
}

fn site(name: &str) -> Site {
    hbase::made(name, PARTITIONS, crowd::SETTINGS).set("ingest.batch_records_max", "200")
}

/// Until the group's positions are at the end of all partitions.
fn await_all_read(site: &Site) {
    eventually("the group has read everything", || {
        match Kafka::shared().group_lag(&site.group(), &site.topics.all()) {
            0 => Ok(()),
            lag => Err(format!("{lag} records are left")),
        }
    });
}

#[test]
fn workers_come_and_go_and_any_exporter_shows_the_same() {
    let site = site("hbase-roles");
    let mut workers = vec![site.start_role("attribute")];
    for (round, portion) in records().chunks(records().len().div_ceil(4)).enumerate() {
        crowd::produce(&site.topics, portion);
        workers.push(site.start_role("attribute"));
        if round % 2 == 1 {
            let (status, log) = workers.remove(0).terminate();
            assert!(status.success(), "{log}");
        }
    }
    await_all_read(&site);
    let exporter = site.start_role("export");
    check_equal(&downloads(&site, &exporter), replayed());
    // Another process, and the one that does all.
    let both = site.start_role("run");
    check_equal(&downloads(&site, &both), replayed());
    for one in workers.into_iter().chain([exporter, both]) {
        let (status, log) = one.terminate();
        assert!(status.success(), "{log}");
    }
}

#[test]
fn a_worker_that_is_killed_loses_nothing() {
    let site = site("hbase-killed");
    for portion in records().chunks(records().len().div_ceil(5)) {
        crowd::produce(&site.topics, portion);
        let worker = site.start_role("attribute");
        worker.await_some_read();
        worker.kill9();
    }
    let last = site.start_role("run");
    await_all_read(&site);
    check_equal(&downloads(&site, &last), replayed());
}

#[test]
fn how_far_all_is_in_is_told_by_those_who_read_to_those_who_export() {
    let site = site("hbase-complete");
    crowd::produce(&site.topics, &records()[..100]);
    let exporter = site.start_role("export");
    let header = |exporter: &Adtrail| {
        let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}", APPS[0]);
        let reply = exporter.get(&path).expect("an answer");
        reply.header("adtrail-complete-until").map(str::to_owned)
    };
    assert_eq!(header(&exporter), None, "nobody has read anything yet");
    let _workers = [site.start_role("attribute"), site.start_role("attribute")];
    await_all_read(&site);
    eventually("it is known how far all is in", || header(&exporter).ok_or("not yet"));
}

/// What an embedded store has figures for is read here; the answers are the same.
#[test]
fn every_question_is_answered_as_by_an_embedded_store() {
    let many = site("hbase-routes");
    let one = Site::on(many.topics.clone(), Kafka::shared().brokers(), crowd::SETTINGS)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    crowd::produce(&many.topics, records());
    let (one_process, other) = (one.start(), many.start_role("run"));
    one_process.await_caught_up();
    await_all_read(&many);
    let mut paths = Vec::new();
    for app in APPS {
        let range = format!("from={FROM}&to={TO}");
        for by in ["day", "status", "channel,spreadid", "event_name,status"] {
            paths.push(format!("/v1/apps/{app}/summary?{range}&by={by}"));
        }
        paths.push(format!("/v1/apps/{app}/summary.csv?{range}&by=day&timezone=Asia/Kathmandu"));
        for spreadid in 1..=5 {
            let devices = format!("/v1/apps/{app}/campaigns/{spreadid}/devices");
            paths.push(format!("{devices}?{range}&limit=2"));
            paths.push(format!("{devices}?{range}&limit=1000"));
        }
        paths.push(format!("/v1/apps/{app}/events.ndjson?{range}&type=effect&status=attributed"));
        paths.push(format!("/v1/apps/{app}/events.csv?{range}&limit=40"));
        paths.push(format!(
            "/api/raw-data/export/app/{app}/installs_report/v5?{range}&maximum_rows=50"
        ));
    }
    let mut compared = 0;
    while let Some(path) = paths.pop() {
        let [expected, found] =
            [&one_process, &other].map(|adtrail| adtrail.get(&path).expect("an answer"));
        assert_eq!((found.status, found.text()), (expected.status, expected.text()), "{path}");
        let [next, same] = [&expected, &found].map(|reply| reply.header("link").map(str::to_owned));
        assert_eq!(next, same, "{path}");
        // Pages go on where the other one's ended.
        let next =
            next.and_then(|link| Some(link.split_once('<')?.1.split_once('>')?.0.to_owned()));
        paths.extend(next);
        compared += 1;
    }
    assert!(compared > 70, "{compared} answers, pages among them");
}

#[test]
fn a_store_is_moved_there_and_back() {
    let (some, rest) = records().split_at(records().len() / 2);
    // On one machine first.
    let one = Site::new(Kafka::shared(), "hbase-moved", PARTITIONS, crowd::SETTINGS)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    crowd::produce(&one.topics, some);
    let adtrail = one.start();
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    let many = one.beside();
    let many = hbase::in_hbase(many, &hbase::cluster::HBase::shared().servers(), "hbase-moved");
    run_ok(&mut many.command(&["hbase", "init"]), b"");
    let copy = |from: &Site, to: &Site| {
        let mut command = testbed::adtrail::adtrail();
        command.arg("copy").arg("--from").arg(from.written()).arg("--to").arg(to.written());
        run(&mut command, b"")
    };
    let output = copy(&one, &many);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().count() == 5 && shown.contains("events: "), "{shown}");
    for app in APPS {
        assert_eq!(many.download(app, FROM, TO, &[]), one.download(app, FROM, TO, &[]));
    }
    // It goes on from the same positions.
    crowd::produce(&many.topics, rest);
    let worker = many.start_role("attribute");
    worker.await_read_more_than(0);
    await_all_read(&many);
    let read = worker.metric("adtrail_ingest_read_total");
    assert_eq!(read, Some(rest.len() as f64), "nothing was read twice");
    // While a worker is there nothing is moved.
    let back = one.beside();
    let refused = copy(&many, &back);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("stop them first"), "{said}");
    assert!(worker.terminate().0.success());
    let output = copy(&many, &back);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let adtrail = back.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&back, &adtrail), replayed());
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // Where something is already nothing is put.
    let again = copy(&one, &many);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("it has rows already"), "{said}");
}

/// Code, standard output and standard error.
fn run_on(site: &Site, args: &[&str]) -> (Option<i32>, String, String) {
    let output = site.run(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_is_no_store_is_told_with_what_to_do() {
    let servers = hbase::cluster::HBase::shared().servers();
    let check = |servers: &[String], part: &str| {
        let topics = testbed::site::Topics::of("hbase-wrong");
        let site = Site::on(topics, Kafka::shared().brokers(), crowd::SETTINGS);
        let site = hbase::in_hbase(site, servers, "hbase-wrong");
        for args in [&["hbase", "init"][..], &["regions"]] {
            let (code, shown, said) = run_on(&site, args);
            assert_eq!((code, &*shown), (Some(1), ""), "{said}");
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
    };
    check(&["127.0.0.1:1".to_owned()], "name masters or region servers as host:port");
    // Kafka is not HBase.
    check(&[Kafka::shared().brokers()], "no server of HBase answers");
    // Somebody else's table.
    let cluster = hbase::cluster::HBase::shared();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let family = hbase_client::Family::new("other");
        let spec = hbase_client::TableSpec::new("hbase-wrong_events").family(family);
        cluster.client().await.admin().create(&spec, &[]).await.expect("it is made");
    });
    check(&servers, "it has no column family d, but other");
    // One role alone, over an embedded store.
    let site = Site::on(testbed::site::Topics::of("none"), "nowhere:1".into(), crowd::SETTINGS);
    for role in ["attribute", "export"] {
        let (code, _, said) = run_on(&site, &[role]);
        assert!(code == Some(2) && said.contains("store.kind = \"hbase\""), "{said}");
    }
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(2) && said.contains("embedded store"), "{said}");
}

#[test]
fn regions_are_those_of_the_cluster() {
    let site = site("hbase-regions");
    let (code, shown, said) = run_on(&site, &["regions", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let regions = shown["regions"].as_array().expect("a list");
    let partitions: Vec<_> = regions.iter().map(|region| region["partition"].as_u64()).collect();
    assert_eq!(partitions, (0..8).map(Some).collect::<Vec<_>>());
    assert!(regions.iter().all(|region| region["server"].is_string()), "{shown}");
    let (code, shown, _) = run_on(&site, &["regions"]);
    assert!(code == Some(0) && shown.contains("largest region against the mean of 8"), "{shown}");
}

#[test]
fn tables_are_made_once_and_looked_at() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site = hbase::on(&servers, "hbase-tables", 1, crowd::SETTINGS);
    let (code, shown, said) =
        run_on(&site, &["download", "--app", APPS[0], "--from", FROM, "--to", TO]);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(said.contains("adtrail hbase init makes it"), "{said}");
    let tables = ["events", "touches", "activations", "effects", "meta"];
    let lines = |what: &str, regions: [&str; 5]| -> String {
        let line = |(table, regions)| format!("hbase-tables_{table}: {what}, {regions}\n");
        tables.into_iter().zip(regions).map(line).collect()
    };
    let regions = ["8 regions", "16 regions", "16 regions", "16 regions", "1 region"];
    let dry = ["hbase", "init", "--dry-run"];
    for _ in 0..2 {
        let (code, shown, said) = run_on(&site, &dry);
        assert_eq!((code, shown), (Some(0), lines("would be made", regions)), "{said}");
    }
    let (code, shown, said) = run_on(&site, &["hbase", "init"]);
    assert_eq!((code, shown), (Some(0), lines("made", regions)), "{said}");
    for args in [&dry[..], &["hbase", "init"]] {
        let (code, shown, said) = run_on(&site, args);
        let expected: String =
            tables.map(|table| format!("hbase-tables_{table}: as it should be\n")).concat();
        assert_eq!((code, shown), (Some(0), expected), "{said}");
    }
    // What differs is named, with the line that mends it.
    let site = site.set("store.retention", "30d");
    let (code, shown, said) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(1), "{shown}{said}");
    let line = "hbase-tables_events: TTL is not set, and should be 2678400; in the hbase shell: alter \
                'hbase-tables_events', {NAME => 'd', TTL => '2678400'}\n";
    assert!(shown.contains(line), "{shown}");
    let site = site.set("store.partitions", "9");
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("was made with store.partitions = 8, configured is 9"), "{said}");
    let (code, _, said) = run_on(&site, &["backup", "somewhere"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("HBase has snapshots"), "{said}");
}
