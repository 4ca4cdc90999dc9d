//! How tables are made, and what is told of those that are not as they should be.

use hbase_client::{Family, Put, TableSpec};
use testbed::hbase;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};

use super::{done, remove, run_on};

#[test]
fn unusable_tables_are_reported_with_a_remedy() {
    let servers = hbase::cluster::HBase::shared().servers();
    let check = |servers: &[String], [to_init, to_others]: [&str; 2]| {
        let topics = testbed::site::Topics::of("hbase-wrong");
        let site = Site::on(topics, Kafka::shared().brokers(), traffic::SETTINGS);
        let site = hbase::in_hbase(site, servers, "hbase-wrong");
        for (args, part) in [(&["hbase", "init"][..], to_init), (&["regions"], to_others)] {
            let (code, shown, said) = run_on(&site, args);
            assert_eq!((code, &*shown), (Some(1), ""), "{said}");
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
    };
    // Kafka is not HBase.
    check(&[Kafka::shared().brokers()], ["no server of HBase answers"; 2]);
    // A table of another program.
    let foreign = |table: &str| {
        let spec = TableSpec::new(table).family(Family::new("other"));
        done(async |client| client.admin().create(&spec, &[]).await.expect("it is made"));
    };
    foreign("hbase-wrong_events");
    check(&servers, ["it has no column family d, only other", "run adtrail hbase init"]);
    // Where the rest of a store is there.
    let site = hbase::made("hbase-replaced", 1, traffic::SETTINGS);
    done(async |client| {
        let admin = client.admin();
        admin.disable("hbase-replaced_effects").await.expect("it is disabled");
        admin.delete("hbase-replaced_effects").await.expect("it is deleted");
    });
    let (code, _, said) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && said.contains("run adtrail hbase init"), "{said}");
    foreign("hbase-replaced_effects");
    let (code, _, said) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && said.contains("it has no column family d"), "{said}");
    // One role alone, over an embedded store.
    let site = Site::on(testbed::site::Topics::of("none"), "nowhere:1".into(), traffic::SETTINGS);
    for role in ["attribute", "export"] {
        let (code, _, said) = run_on(&site, &[role]);
        assert!(code == Some(2) && said.contains("store.kind = \"hbase\""), "{said}");
    }
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(2) && said.contains("embedded store"), "{said}");
    remove("hbase-replaced");
}

#[test]
fn init_makes_tables_once_and_checks_them() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site = hbase::on(&servers, "hbase-tables", 1, traffic::SETTINGS);
    let (code, shown, said) =
        run_on(&site, &["download", "--app", APPS[0], "--from", FROM, "--to", TO]);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(said.contains("run adtrail hbase init"), "{said}");
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
    let line = "hbase-tables_events: TTL is not set, expected 2678400; in the hbase shell: alter \
                'hbase-tables_events', {NAME => 'd', TTL => '2678400'}\n";
    assert!(shown.contains(line), "{shown}");
    let site = site.set("store.partitions", "9");
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("was created with store.partitions = 8, but 9 is configured"), "{said}");
    let (code, _, said) = run_on(&site, &["backup", "somewhere"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("HBase has snapshots"), "{said}");
}

/// The line that tells of a table.
#[track_caller]
fn check_told(shown: &str, table: &str, what: &str, remedy: &str) {
    let line = format!("{table}: {what}; in the hbase shell: {remedy}");
    assert!(shown.lines().any(|one| one == line), "{line}\nis not in\n{shown}");
}

#[test]
fn no_worker_starts_where_hbase_would_drop_what_is_needed() {
    let servers = hbase::cluster::HBase::shared().servers();
    let site =
        hbase::on(&servers, "hbase-short", 1, traffic::SETTINGS).set("store.retention", "30d");
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert_eq!(code, Some(0), "{said}");
    let worker = site.start_role("attribute");
    assert!(worker.terminate().0.success());
    // Kept for longer by now.
    let site = site.set("store.retention", "off");
    let what = "TTL is 2678400, expected not set: HBase deletes data that exports need";
    let remedy = "alter 'hbase-short_events', {NAME => 'd', TTL => '2147483647'}";
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let (code, shown, said) = run_on(&site, args);
        assert!(code == Some(1) && said.contains("no worker starts before"), "{said}");
        check_told(&shown, "hbase-short_events", what, remedy);
        let lossy =
            shown.lines().filter(|line| line.contains("deletes data that exports need")).count();
        assert_eq!(lossy, 4, "rows and facts: {shown}");
    }
    for role in ["attribute", "run"] {
        let (code, _, said) = run_on(&site, &[role]);
        assert!(code == Some(1) && said.contains(remedy), "{said}");
        assert!(said.contains("alter 'hbase-short_touches'"), "{said}");
    }
    // What is there is shown.
    let exporter = site.start_role("export");
    assert!(exporter.log().contains(remedy), "{}", exporter.log());
    assert!(exporter.terminate().0.success());
    // A longer one takes space alone.
    let site = site.set("store.retention", "20d");
    let (code, _, said) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(1) && said.contains("rows and results are the same"), "{said}");
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
    done(async |client| {
        let splits = [b"\x00\x04".to_vec().into(), b"\x00\x05\x01".to_vec().into()];
        client.admin().create(&spec, &splits).await.expect("it is made");
    });
    let (code, shown, said) = run_on(&site, &["hbase", "init"]);
    assert!(
        code == Some(1) && said.contains("7 differences in the tables hbase-other_…"),
        "{said}"
    );
    let events = "hbase-other_events";
    let remedy = format!("alter '{events}', {{NORMALIZATION_ENABLED => 'false'}}");
    check_told(&shown, events, "NORMALIZATION_ENABLED is true, expected false", &remedy);
    for partition in [1, 2, 3, 5, 6, 7] {
        let row = format!("\"\\x00\\x0{partition}\"");
        let what = format!("no region begins at {row}");
        check_told(&shown, events, &what, &format!("split '{events}', {row}"));
    }
    // What is read and written is the same.
    assert!(site.start_role("run").terminate().0.success());
    for table in ["hbase-other_touches", "hbase-other_meta"] {
        done(async |client| client.admin().disable(table).await.expect("it is disabled"));
        let (code, shown, said) = run_on(&site, &["hbase", "init"]);
        assert!(code == Some(1) && said.contains("nothing works over a table"), "{said}");
        check_told(&shown, table, "it is disabled", &format!("enable '{table}'"));
        done(async |client| client.admin().enable(table).await.expect("it is enabled"));
    }
    // Of a store that nothing is known of nothing is made.
    let effects = "hbase-other_effects";
    done(async |client| {
        let admin = client.admin();
        admin.disable(effects).await.expect("it is disabled");
        admin.delete(effects).await.expect("it is deleted");
        admin.disable("hbase-other_meta").await.expect("it is disabled");
    });
    let (code, shown, said) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(1) && !shown.contains(effects), "{shown}{said}");
    let tables = done(async |client| client.admin().list().await.expect("tables"));
    assert!(tables.iter().all(|table| table.to_string() != effects), "{tables:?}");
    done(async |client| client.admin().enable("hbase-other_meta").await.expect("it is enabled"));
    let (_, shown, said) = run_on(&site, &["hbase", "init"]);
    assert!(shown.contains(&format!("{effects}: made, 16 regions")), "{shown}{said}");
    remove("hbase-other");
}

#[test]
fn a_store_of_another_layout_is_left_alone() {
    let site = hbase::made("hbase-layout", 1, traffic::SETTINGS);
    let download = ["download", "--app", APPS[0], "--from", FROM, "--to", TO];
    for (layout, advice) in [(2, "start with an empty store"), (4, "use that version")] {
        done(async |client| {
            let table = client.table("hbase-layout_meta").expect("a name");
            let put = Put::new("store").cell("d", "v", vec![0, 0, 0, layout, 0, 8]);
            table.mutate(put).await.expect("it is put");
        });
        let versions = format!(
            "the tables hbase-layout_… has layout version {layout}, this adtrail reads version 3: "
        );
        for args in [&["hbase", "init"][..], &["attribute"], &["regions"], &download] {
            let (code, shown, said) = run_on(&site, args);
            assert_eq!((code, &*shown), (Some(1), ""), "{said}");
            assert!(said.contains(&versions) && said.contains(advice), "{said}");
        }
    }
    remove("hbase-layout");
}

#[test]
fn no_store_is_made_over_rows_of_another() {
    let site = hbase::made("hbase-rest", 1, traffic::SETTINGS);
    done(async |client| {
        let admin = client.admin();
        admin.disable("hbase-rest_meta").await.expect("it is disabled");
        admin.delete("hbase-rest_meta").await.expect("it is deleted");
        let table = client.table("hbase-rest_events").expect("a name");
        table.mutate(Put::new("a row").cell("d", "v", "1")).await.expect("it is put");
    });
    for args in [&["hbase", "init"][..], &["hbase", "init", "--dry-run"]] {
        let (code, shown, said) = run_on(&site, args);
        assert_eq!((code, &*shown), (Some(1), ""), "{said}");
        let part =
            "table hbase-rest_events cannot be used: it has rows, but hbase-rest_meta has no";
        assert!(said.contains(part), "{said}");
    }
    let (code, _, said) = run_on(&site, &["attribute"]);
    assert!(code == Some(1) && said.contains("run adtrail hbase init"), "{said}");
    // Without rows it is one that was begun to be made.
    done(async |client| {
        let table = client.table("hbase-rest_events").expect("a name");
        table.mutate(hbase_client::Delete::new("a row")).await.expect("it is deleted");
    });
    let (code, shown, said) = run_on(&site, &["hbase", "init"]);
    assert!(code == Some(0) && shown.contains("hbase-rest_meta: made"), "{shown}{said}");
    remove("hbase-rest");
}
