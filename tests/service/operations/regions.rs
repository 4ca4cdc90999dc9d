//! Regions as operators see them, and an app whose fanout changes while the service is repeatedly killed: exports
//! depend only on the events.

use serde_json::Value;
use testbed::adtrail::Adtrail;
use testbed::exports::check_same;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{rows, run_ok};

/// Returns the settings of the traffic with this fanout of app-x.
fn settings(fanout: u16) -> String {
    let app = "key = \"app-x\"\n";
    traffic::SETTINGS.replace(app, &format!("{app}[apps.store]\nfanout = {fanout}\n"))
}

fn regions(site: &Site) -> Value {
    let shown = run_ok(&mut site.command(&["regions", "--json"]), b"");
    serde_json::from_slice(&shown).expect("valid JSON")
}

fn sum(regions: &Value, figure: &str) -> u64 {
    let regions = regions["regions"].as_array().expect("it is an array");
    regions.iter().map(|region| region[figure].as_u64().expect("it is a number")).sum()
}

#[test]
fn fanout_changes_and_kills_do_not_change_exports() {
    let mut site = Site::new(Kafka::shared(), "regions.fanout", 2, &settings(1))
        .set("store.region_bytes_max", "65536")
        .set("ingest.batch_records_max", "40");
    let records = traffic::records(7, 2_000);
    let events = traffic::file(&records);
    let fanouts = [1, 4, 32, 2, 16];
    let mut portions = records.chunks(records.len().div_ceil(fanouts.len()));
    let mut last: Option<Adtrail> = None;
    for fanout in fanouts {
        last.into_iter().for_each(Adtrail::kill9);
        site.change(&settings(fanout));
        traffic::produce(&site.topics, portions.next().unwrap());
        let adtrail = site.start();
        adtrail.await_some_read();
        last = Some(adtrail);
    }
    let adtrail = last.unwrap();
    adtrail.await_caught_up();
    let mut rows_exported = 0;
    for app in APPS {
        let downloaded = site.download(app, FROM, TO, &[]);
        check_same(app, &downloaded, &site.replay(app, events.as_bytes()));
        rows_exported += rows::parse(&downloaded).len() as u64;
    }
    check_regions(&site, &adtrail, rows_exported);
    let before = regions(&site);
    adtrail.kill9();
    assert_eq!(sum(&regions(&site), "rows"), rows_exported, "without the service");
    let adtrail = site.start();
    let after = regions(&site);
    for figure in ["rows", "bytes", "written"] {
        assert_eq!(sum(&after, figure), sum(&before, figure), "{figure} after a kill");
    }
    drop(adtrail);
}

/// Compares the output of the command with the metrics.
fn check_regions(site: &Site, adtrail: &Adtrail, rows_exported: u64) {
    let regions = regions(site);
    assert_eq!(sum(&regions, "rows"), rows_exported);
    assert!(sum(&regions, "written") >= rows_exported);
    let list = regions["regions"].as_array().unwrap();
    assert!(list.len() > 8, "the regions are not split: {}", list.len());
    assert_eq!(adtrail.metric("adtrail_store_regions"), Some(list.len() as f64));
    let largest = adtrail.metric_of("adtrail_store_region_rows", "of=\"largest\"").unwrap();
    let rows = list.iter().map(|region| region["rows"].as_u64());
    assert_eq!(rows.max().unwrap(), Some(largest as u64));
    let skew = adtrail.metric_of("adtrail_store_region_skew", "by=\"bytes\"").unwrap();
    assert!((regions["skew"]["bytes"].as_f64().unwrap() - skew).abs() < 1e-9);
    let spread = &regions["spread"][0];
    assert_eq!((&spread["app"], &spread["fanout"]), (&"app-x".into(), &16.into()));
    assert_eq!(
        spread["partitions"].as_array().unwrap().len(),
        32,
        "the partitions of old and new rows"
    );
    // An export counts as reads.
    assert!(adtrail.get("/v1/apps/app-x/events.csv?from=2020-01-01&to=2030-01-01").is_ok());
    let read = adtrail.metric_of("adtrail_store_region_rows_read_per_second", "of=\"largest\"");
    assert!(read > Some(0.0), "{read:?}");
    let text = String::from_utf8(run_ok(&mut site.command(&["regions"]), b"")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("region") && lines[1].ends_with("partition 0"), "{text}");
    assert!(text.contains("app-x, 20"), "a region that begins within an app: {text}");
    assert!(lines.last().unwrap().starts_with("app-x is spread over 16 partitions"), "{text}");
}
