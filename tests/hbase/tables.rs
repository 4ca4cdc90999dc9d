//! Creating tables, and reporting tables that differ from the settings.

use hbase_client::{Family, Put, TableSpec};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{check_exit, check_refused, hbase};

use super::{TABLES, delete, disable, enable, output_of, remove, with_client};

const DOWNLOAD: [&str; 7] = ["download", "--app", APPS[0], "--from", FROM, "--to", TO];

#[test]
fn unusable_tables_are_reported_with_a_remedy() {
    let servers = hbase::cluster::HBase::shared().servers();
    let check = |servers: &[String], [init_error, regions_error]: [&str; 2]| {
        let topics = testbed::site::Topics::of("hbase-wrong");
        let site = Site::on(topics, Kafka::shared().brokers(), traffic::SETTINGS);
        let site = hbase::in_hbase(site, servers, "hbase-wrong");
        for (args, part) in [(&["hbase", "init"][..], init_error), (&["regions"], regions_error)] {
            check_refused(&site.run(args), 1, &[part]);
        }
    };
    // Kafka is not HBase.
    check(&[Kafka::shared().brokers()], ["no HBase server responds"; 2]);
    // A table that another program has created.
    let foreign = |table: &str| {
        let spec = TableSpec::new(table).family(Family::new("other"));
        with_client(async |client| {
            client.admin().create(&spec, &[]).await.expect("the table is created")
        });
    };
    foreign("hbase-wrong_events");
    check(&servers, ["it has no column family d, only other", "run adtrail hbase init"]);
    // A store with a missing table, which is then replaced by a foreign one.
    let site = hbase::with_tables("hbase-replaced", 1, traffic::SETTINGS);
    delete("hbase-replaced_effects");
    check_exit(&site.run(&["attribute"]), 1, &["run adtrail hbase init"]);
    foreign("hbase-replaced_effects");
    check_exit(&site.run(&["attribute"]), 1, &["it has no column family d"]);
    // One role alone, over an embedded store.
    let site = Site::on(testbed::site::Topics::of("none"), "nowhere:1".into(), traffic::SETTINGS);
    for role in ["attribute", "export"] {
        check_exit(&site.run(&[role]), 2, &["store.kind = \"hbase\""]);
    }
    check_exit(&site.run(&["hbase", "init"]), 2, &["embedded store"]);
    remove("hbase-replaced");
}

#[test]
fn init_creates_tables_once_and_checks_them() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site = hbase::on(&servers, "hbase-tables", 1, traffic::SETTINGS);
    check_refused(&site.run(&DOWNLOAD), 1, &["run adtrail hbase init"]);
    let lines = |outcome: &str, regions: [&str; 7]| -> String {
        let line = |(table, regions)| format!("hbase-tables_{table}: {outcome}, {regions}\n");
        TABLES.into_iter().zip(regions).map(line).collect()
    };
    let [facts, outbox] = ["16 regions", "4 regions"];
    let regions = ["8 regions", facts, facts, facts, outbox, outbox, "1 region"];
    let dry = ["hbase", "init", "--dry-run"];
    for _ in 0..2 {
        assert_eq!(output_of(&site, &dry, 0, &[]), lines("would be created", regions));
    }
    assert_eq!(output_of(&site, &["hbase", "init"], 0, &[]), lines("created", regions));
    for args in [&dry[..], &["hbase", "init"]] {
        let expected =
            TABLES.map(|table| format!("hbase-tables_{table}: matches the settings\n")).concat();
        assert_eq!(output_of(&site, args, 0, &[]), expected);
    }
    // Each difference is named, with the command that corrects it.
    let site = site.set("store.retention", "30d");
    let shown = output_of(&site, &["hbase", "init"], 1, &[]);
    let line = "hbase-tables_events: TTL is not set, expected 2678400; in the hbase shell: alter \
                'hbase-tables_events', {NAME => 'd', TTL => '2678400'}\n";
    assert!(shown.contains(line), "{shown}");
    let site = site.set("store.partitions", "9");
    let part = "was created with store.partitions = 8, but 9 is configured";
    check_exit(&site.run(&["hbase", "init"]), 1, &[part]);
    check_exit(&site.run(&["backup", "somewhere"]), 2, &["HBase has snapshots"]);
}

/// Checks that the output has a line about a table.
#[track_caller]
fn check_reported(shown: &str, table: &str, difference: &str, remedy: &str) {
    let line = format!("{table}: {difference}; in the hbase shell: {remedy}");
    assert!(shown.lines().any(|shown| shown == line), "{line}\nis not in\n{shown}");
}

#[test]
fn no_worker_starts_if_a_ttl_is_too_short() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site =
        hbase::on(&servers, "hbase-short", 1, traffic::SETTINGS).set("store.retention", "30d");
    check_exit(&site.run(&["hbase", "init"]), 0, &[]);
    let worker = site.start_role("attribute");
    worker.stop();
    // Retention becomes longer than the TTL.
    let site = site.set("store.retention", "off");
    let difference = "TTL is 2678400, expected not set: HBase deletes data that exports need";
    let remedy = "alter 'hbase-short_events', {NAME => 'd', TTL => '2147483647'}";
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let shown = output_of(&site, args, 1, &["no worker starts until"]);
        check_reported(&shown, "hbase-short_events", difference, remedy);
        let lossy =
            shown.lines().filter(|line| line.contains("deletes data that exports need")).count();
        assert_eq!(lossy, 4, "all tables of rows and facts are reported: {shown}");
    }
    for role in ["attribute", "run"] {
        check_exit(&site.run(&[role]), 1, &[remedy, "alter 'hbase-short_touches'"]);
    }
    // Existing rows are exported.
    let exporter = site.start_role("export");
    assert!(exporter.log().contains(remedy), "{}", exporter.log());
    exporter.stop();
    // A TTL that is too long only costs space.
    let site = site.set("store.retention", "20d");
    check_exit(&site.run(&["hbase", "init"]), 1, &["results are not affected"]);
    let worker = site.start_role("attribute");
    worker.stop();
    remove("hbase-short");
}

#[test]
fn differing_tables_are_reported_with_a_remedy() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site = hbase::on(&servers, "hbase-other", 1, traffic::SETTINGS);
    let family = [
        ("BLOOMFILTER", "NONE"),
        ("VERSIONS", "1"),
        ("DATA_BLOCK_ENCODING", "FAST_DIFF"),
        ("COMPRESSION", "GZ"),
    ];
    let family = family
        .iter()
        .fold(Family::new("d"), |family, (name, value)| family.attribute(*name, *value));
    let spec = TableSpec::new("hbase-other_events").attribute("NORMALIZATION_ENABLED", "true");
    let spec = spec.family(family);
    with_client(async |client| {
        let splits = [b"\x00\x04".to_vec().into(), b"\x00\x05\x01".to_vec().into()];
        client.admin().create(&spec, &splits).await.expect("the table is created");
    });
    let count = "7 differences in the tables hbase-other_…";
    let shown = output_of(&site, &["hbase", "init"], 1, &[count]);
    let events = "hbase-other_events";
    let remedy = format!("alter '{events}', {{NORMALIZATION_ENABLED => 'false'}}");
    check_reported(&shown, events, "NORMALIZATION_ENABLED is true, expected false", &remedy);
    for partition in [1, 2, 3, 5, 6, 7] {
        let row = format!("\"\\x00\\x0{partition}\"");
        let difference = format!("no region begins at {row}");
        check_reported(&shown, events, &difference, &format!("split '{events}', {row}"));
    }
    // The service runs with these tables.
    site.start_role("run").stop();
    for table in ["hbase-other_touches", "hbase-other_meta"] {
        disable(table);
        let problem = "a disabled table can be neither read";
        let shown = output_of(&site, &["hbase", "init"], 1, &[problem]);
        check_reported(&shown, table, "it is disabled", &format!("enable '{table}'"));
        enable(table);
    }
    // No table is created while the store's metadata cannot be read.
    let effects = "hbase-other_effects";
    delete(effects);
    disable("hbase-other_meta");
    let shown = output_of(&site, &["hbase", "init"], 1, &[]);
    assert!(!shown.contains(effects), "{shown}");
    let tables =
        with_client(async |client| client.admin().list().await.expect("the tables are listed"));
    assert!(tables.iter().all(|table| table.to_string() != effects), "{tables:?}");
    enable("hbase-other_meta");
    let shown = String::from_utf8(site.run(&["hbase", "init"]).stdout).expect("valid UTF-8");
    assert!(shown.contains(&format!("{effects}: created, 16 regions")), "{shown}");
    remove("hbase-other");
}

#[test]
fn a_store_with_another_layout_version_is_refused() {
    let site = hbase::with_tables("hbase-layout", 1, traffic::SETTINGS);
    for (layout, advice) in [(6, "start with an empty store"), (8, "use that version")] {
        with_client(async |client| {
            let table = client.table("hbase-layout_meta").expect("the name is valid");
            let put = Put::new("store").cell("d", "v", vec![0, 0, 0, layout, 0, 8]);
            table.mutate(put).await.expect("the row is written");
        });
        let versions = format!(
            "the tables hbase-layout_… has layout version {layout}, this adtrail reads version 7: "
        );
        for args in [&["hbase", "init"][..], &["attribute"], &["regions"], &DOWNLOAD] {
            check_refused(&site.run(args), 1, &[&versions, advice]);
        }
    }
    remove("hbase-layout");
}

#[test]
fn init_refuses_tables_with_rows_but_no_metadata() {
    let site = hbase::with_tables("hbase-rest", 1, traffic::SETTINGS);
    delete("hbase-rest_meta");
    with_client(async |client| {
        let table = client.table("hbase-rest_events").expect("the name is valid");
        table.mutate(Put::new("a row").cell("d", "v", "1")).await.expect("the row is written");
    });
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let part =
            "table hbase-rest_events cannot be used: it has rows, but hbase-rest_meta has no";
        check_refused(&site.run(args), 1, &[part]);
    }
    check_exit(&site.run(&["attribute"]), 1, &["run adtrail hbase init"]);
    // Without rows, the tables are those of an interrupted init.
    with_client(async |client| {
        let table = client.table("hbase-rest_events").expect("the name is valid");
        table.mutate(hbase_client::Delete::new("a row")).await.expect("the row is deleted");
    });
    let shown = output_of(&site, &["hbase", "init"], 0, &[]);
    assert!(shown.contains("hbase-rest_meta: created"), "{shown}");
    remove("hbase-rest");
}
