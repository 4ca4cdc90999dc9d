//! Creating tables, and reporting tables that differ from the settings.

use hbase_client::{Family, Put, TableSpec};
use testbed::hbase;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};

use super::{remove, run_on, with_client};

#[test]
fn unusable_tables_are_reported_with_a_remedy() {
    let servers = hbase::cluster::HBase::shared().servers();
    let check = |servers: &[String], [to_init, to_others]: [&str; 2]| {
        let topics = testbed::site::Topics::of("hbase-wrong");
        let site = Site::on(topics, Kafka::shared().brokers(), traffic::SETTINGS);
        let site = hbase::in_hbase(site, servers, "hbase-wrong");
        for (args, part) in [(&["hbase", "init"][..], to_init), (&["regions"], to_others)] {
            let (code, shown, stderr) = run_on(&site, args);
            assert_eq!((code, &*shown), (Some(1), ""), "{stderr}");
            assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
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
    // A store with one table missing, and then replaced by a foreign one.
    let site = hbase::with_tables("hbase-replaced", 1, traffic::SETTINGS);
    with_client(async |client| {
        let admin = client.admin();
        admin.disable("hbase-replaced_effects").await.expect("the table is disabled");
        admin.delete("hbase-replaced_effects").await.expect("the table is deleted");
    });
    let (code, _, stderr) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && stderr.contains("run adtrail hbase init"), "{stderr}");
    foreign("hbase-replaced_effects");
    let (code, _, stderr) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && stderr.contains("it has no column family d"), "{stderr}");
    // One role alone, over an embedded store.
    let site = Site::on(testbed::site::Topics::of("none"), "nowhere:1".into(), traffic::SETTINGS);
    for role in ["attribute", "export"] {
        let (code, _, stderr) = run_on(&site, &[role]);
        assert!(code == Some(2) && stderr.contains("store.kind = \"hbase\""), "{stderr}");
    }
    let (code, _, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(2) && stderr.contains("embedded store"), "{stderr}");
    remove("hbase-replaced");
}

#[test]
fn init_creates_tables_once_and_checks_them() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site = hbase::on(&servers, "hbase-tables", 1, traffic::SETTINGS);
    let (code, shown, stderr) =
        run_on(&site, &["download", "--app", APPS[0], "--from", FROM, "--to", TO]);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(stderr.contains("run adtrail hbase init"), "{stderr}");
    let tables = ["events", "touches", "activations", "effects", "meta"];
    let lines = |outcome: &str, regions: [&str; 5]| -> String {
        let line = |(table, regions)| format!("hbase-tables_{table}: {outcome}, {regions}\n");
        tables.into_iter().zip(regions).map(line).collect()
    };
    let regions = ["8 regions", "16 regions", "16 regions", "16 regions", "1 region"];
    let dry = ["hbase", "init", "--dry-run"];
    for _ in 0..2 {
        let (code, shown, stderr) = run_on(&site, &dry);
        assert_eq!((code, shown), (Some(0), lines("would be created", regions)), "{stderr}");
    }
    let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert_eq!((code, shown), (Some(0), lines("created", regions)), "{stderr}");
    for args in [&dry[..], &["hbase", "init"]] {
        let (code, shown, stderr) = run_on(&site, args);
        let expected: String =
            tables.map(|table| format!("hbase-tables_{table}: matches the settings\n")).concat();
        assert_eq!((code, shown), (Some(0), expected), "{stderr}");
    }
    // Each difference is named, with the command that corrects it.
    let site = site.set("store.retention", "30d");
    let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(1), "{shown}{stderr}");
    let line = "hbase-tables_events: TTL is not set, expected 2678400; in the hbase shell: alter \
                'hbase-tables_events', {NAME => 'd', TTL => '2678400'}\n";
    assert!(shown.contains(line), "{shown}");
    let site = site.set("store.partitions", "9");
    let (code, _, stderr) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("was created with store.partitions = 8, but 9 is configured"),
        "{stderr}"
    );
    let (code, _, stderr) = run_on(&site, &["backup", "somewhere"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("HBase has snapshots"), "{stderr}");
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
    let (code, _, stderr) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(0), "{stderr}");
    let worker = site.start_role("attribute");
    assert!(worker.terminate().0.success());
    // Retention becomes longer than the TTL.
    let site = site.set("store.retention", "off");
    let difference = "TTL is 2678400, expected not set: HBase deletes data that exports need";
    let remedy = "alter 'hbase-short_events', {NAME => 'd', TTL => '2147483647'}";
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let (code, shown, stderr) = run_on(&site, args);
        assert!(code == Some(1) && stderr.contains("no worker starts until"), "{stderr}");
        check_reported(&shown, "hbase-short_events", difference, remedy);
        let lossy =
            shown.lines().filter(|line| line.contains("deletes data that exports need")).count();
        assert_eq!(lossy, 4, "tables of rows and facts: {shown}");
    }
    for role in ["attribute", "run"] {
        let (code, _, stderr) = run_on(&site, &[role]);
        assert!(code == Some(1) && stderr.contains(remedy), "{stderr}");
        assert!(stderr.contains("alter 'hbase-short_touches'"), "{stderr}");
    }
    // Existing rows are exported.
    let exporter = site.start_role("export");
    assert!(exporter.log().contains(remedy), "{}", exporter.log());
    assert!(exporter.terminate().0.success());
    // A TTL that is too long only costs space.
    let site = site.set("store.retention", "20d");
    let (code, _, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(1) && stderr.contains("results are not affected"), "{stderr}");
    let worker = site.start_role("attribute");
    assert!(worker.terminate().0.success());
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
    let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(
        code == Some(1) && stderr.contains("7 differences in the tables hbase-other_…"),
        "{stderr}"
    );
    let events = "hbase-other_events";
    let remedy = format!("alter '{events}', {{NORMALIZATION_ENABLED => 'false'}}");
    check_reported(&shown, events, "NORMALIZATION_ENABLED is true, expected false", &remedy);
    for partition in [1, 2, 3, 5, 6, 7] {
        let row = format!("\"\\x00\\x0{partition}\"");
        let difference = format!("no region begins at {row}");
        check_reported(&shown, events, &difference, &format!("split '{events}', {row}"));
    }
    // The service runs with these tables.
    assert!(site.start_role("run").terminate().0.success());
    for table in ["hbase-other_touches", "hbase-other_meta"] {
        with_client(async |client| {
            client.admin().disable(table).await.expect("the table is disabled")
        });
        let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
        assert!(
            code == Some(1) && stderr.contains("a disabled table can be neither read"),
            "{stderr}"
        );
        check_reported(&shown, table, "it is disabled", &format!("enable '{table}'"));
        with_client(async |client| {
            client.admin().enable(table).await.expect("the table is enabled")
        });
    }
    // No table is created while the store's metadata cannot be read.
    let effects = "hbase-other_effects";
    with_client(async |client| {
        let admin = client.admin();
        admin.disable(effects).await.expect("the table is disabled");
        admin.delete(effects).await.expect("the table is deleted");
        admin.disable("hbase-other_meta").await.expect("the table is disabled");
    });
    let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(1) && !shown.contains(effects), "{shown}{stderr}");
    let tables =
        with_client(async |client| client.admin().list().await.expect("the tables are listed"));
    assert!(tables.iter().all(|table| table.to_string() != effects), "{tables:?}");
    with_client(async |client| {
        client.admin().enable("hbase-other_meta").await.expect("the table is enabled")
    });
    let (_, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(shown.contains(&format!("{effects}: created, 16 regions")), "{shown}{stderr}");
    remove("hbase-other");
}

#[test]
fn a_store_with_another_layout_version_is_refused() {
    let site = hbase::with_tables("hbase-layout", 1, traffic::SETTINGS);
    let download = ["download", "--app", APPS[0], "--from", FROM, "--to", TO];
    for (layout, advice) in [(2, "start with an empty store"), (4, "use that version")] {
        with_client(async |client| {
            let table = client.table("hbase-layout_meta").expect("a valid name");
            let put = Put::new("store").cell("d", "v", vec![0, 0, 0, layout, 0, 8]);
            table.mutate(put).await.expect("the row is written");
        });
        let versions = format!(
            "the tables hbase-layout_… has layout version {layout}, this adtrail reads version 3: "
        );
        for args in [&["hbase", "init"][..], &["attribute"], &["regions"], &download] {
            let (code, shown, stderr) = run_on(&site, args);
            assert_eq!((code, &*shown), (Some(1), ""), "{stderr}");
            assert!(stderr.contains(&versions) && stderr.contains(advice), "{stderr}");
        }
    }
    remove("hbase-layout");
}

#[test]
fn init_refuses_tables_with_rows_but_no_metadata() {
    let site = hbase::with_tables("hbase-rest", 1, traffic::SETTINGS);
    with_client(async |client| {
        let admin = client.admin();
        admin.disable("hbase-rest_meta").await.expect("the table is disabled");
        admin.delete("hbase-rest_meta").await.expect("the table is deleted");
        let table = client.table("hbase-rest_events").expect("a valid name");
        table.mutate(Put::new("a row").cell("d", "v", "1")).await.expect("the row is written");
    });
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let (code, shown, stderr) = run_on(&site, args);
        assert_eq!((code, &*shown), (Some(1), ""), "{stderr}");
        let part =
            "table hbase-rest_events cannot be used: it has rows, but hbase-rest_meta has no";
        assert!(stderr.contains(part), "{stderr}");
    }
    let (code, _, stderr) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && stderr.contains("run adtrail hbase init"), "{stderr}");
    // Without rows, the tables are those of an interrupted init.
    with_client(async |client| {
        let table = client.table("hbase-rest_events").expect("a valid name");
        table.mutate(hbase_client::Delete::new("a row")).await.expect("the row is deleted");
    });
    let (code, shown, stderr) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(0) && shown.contains("hbase-rest_meta: created"), "{shown}{stderr}");
    remove("hbase-rest");
}
