//! The running service as operators see it: metrics on a real Prometheus, and logs that contain no device id.

use serde_json::Value;
use testbed::exports::{Exports, OUTCOMES, by_command, check_conserved};
use testbed::kafka::{Kafka, Message};
use testbed::prometheus::{Prometheus, check_metrics};
use testbed::site::Topics;
use testbed::traffic::{self, FROM, Family, TO};
use testbed::{eventually, rows};

#[test]
fn counters_on_a_real_prometheus_account_for_every_record() {
    let site = traffic::site("monitoring.metrics", 2);
    let kafka = Kafka::shared();
    let mut records = traffic::redelivered(&traffic::records(2, 600), 2);
    traffic::produce(&site.topics, &records);
    let empty = Message { key: Some(b"app-x".to_vec()), ..Message::default() };
    kafka.produce(&site.topics.effects, vec![empty.clone(), Message::new("app-x", ""), empty]);

    let adtrail = site.start();
    let prometheus = Prometheus::start(&[&adtrail.admin]);
    // More events while Prometheus scrapes.
    let more = traffic::redelivered(&traffic::records(3, 300), 3);
    traffic::produce(&site.topics, &more);
    records.extend(more);
    adtrail.await_read(records.len() as u64 + 3);
    await_scrape(&prometheus);
    assert_eq!(check_metrics(&adtrail.metrics()), "");

    for (topic, family) in
        site.topics.all().into_iter().zip([Family::Touch, Family::Activation, Family::Effect])
    {
        let of_topic = |name: &str| prometheus.value(&format!("sum({name}{{topic=\"{topic}\"}})"));
        let produced: Vec<_> = records.iter().filter(|record| record.family == family).collect();
        let bad = produced.iter().filter(|record| record.is_bad).count();
        let empty = if family == Family::Effect { 3 } else { 0 };
        let read = of_topic("adtrail_ingest_read_total");
        assert_eq!(read, (produced.len() + empty) as f64, "{topic}");
        assert_eq!(read, OUTCOMES.map(of_topic).iter().sum::<f64>(), "{topic}");
        assert_eq!(of_topic("adtrail_ingest_dead_lettered_total"), bad as f64, "{topic}");
        assert_eq!(of_topic("adtrail_ingest_empty_total"), empty as f64, "{topic}");
        assert!(of_topic("adtrail_attribution_redelivered_total") > 0.0, "{topic}");
        assert_eq!(of_topic("adtrail_ingest_lag_messages"), 0.0, "{topic}");
        assert_eq!(of_topic("adtrail_ingest_lag_seconds"), 0.0, "{topic}");
    }
    // The same check as one expression, as an alert would use it.
    let lost = OUTCOMES.map(|name| format!(" - sum by (topic) ({name})")).concat();
    let lost = format!("sum(sum by (topic) (adtrail_ingest_read_total){lost})");
    assert_eq!(prometheus.value(&lost), 0.0, "{lost}");
    let Topics { activations, effects, .. } = &site.topics;
    let accepted =
        format!("adtrail_attribution_accepted_total{{topic=~\"{activations}|{effects}\"}}");
    let accepted = prometheus.value(&format!("sum({accepted})"));
    assert_eq!(accepted, prometheus.value("sum(adtrail_store_rows)"));
    let exports = by_command(&site);
    let rows: usize = exports.iter().map(|csv| rows::parse(csv).len()).sum();
    assert_eq!(rows as f64, accepted);
    check_store(&adtrail.metrics(), &exports);

    check_engine(&prometheus);

    // After a restart counters start at 0, and the gauges of the store are right at once.
    adtrail.kill9();
    let adtrail = site.start();
    let scrape = adtrail.metrics();
    check_store(&scrape, &exports);
    assert_eq!(check_metrics(&scrape), "");
    let prometheus = Prometheus::start(&[&adtrail.admin]);
    assert_eq!(prometheus.value("sum(adtrail_store_rows)"), accepted);
    assert_eq!(prometheus.value("sum(adtrail_ingest_read_total)"), 0.0);
    assert_eq!(prometheus.value("sum(adtrail_ingest_lag_messages)"), 0.0);
}

/// Checks the gauges of rows: one for each type and status.
#[track_caller]
fn check_store(scrape: &str, exports: &Exports) {
    check_conserved(scrape, exports);
    assert_eq!(scrape.matches("adtrail_store_rows{").count(), 2 * 6, "{scrape}");
}

/// Checks that all metrics of RocksDB are present and plausible.
#[track_caller]
fn check_engine(prometheus: &Prometheus) {
    let metric = |name: &str| prometheus.value(&format!("adtrail_store_{name}"));
    assert_eq!(metric("cache_capacity_bytes"), 448.0 * 1024.0 * 1024.0);
    let buffers = prometheus.value("sum(adtrail_store_memtable_bytes)");
    assert!(
        buffers > 0.0 && metric("cache_bytes") >= buffers,
        "{buffers} of {}",
        metric("cache_bytes")
    );
    assert!(metric("wal_written_bytes_total") >= metric("written_bytes_total"));
    assert!(metric("written_bytes_total") > 1_000.0 && metric("wal_bytes") > 1_000.0);
    for name in ["memtable_bytes", "disk_bytes", "files", "compaction_pending_bytes"] {
        let tables = prometheus.value(&format!("count(adtrail_store_{name}{{table!=\"\"}})"));
        assert_eq!(tables, 10.0, "{name}");
    }
    for name in ["writes_stopped", "writes_delayed", "stalled_seconds_total"] {
        assert_eq!(metric(name), 0.0, "{name}");
    }
}

/// Waits for a scrape that begins after this call.
#[track_caller]
pub(super) fn await_scrape(prometheus: &Prometheus) {
    let now = jiff::Timestamp::now().as_millisecond() as f64 / 1e3;
    let newest = "min(timestamp(adtrail_store_rows))";
    eventually(newest, || match prometheus.query(newest)[..] {
        [time] if time > now => Ok(()),
        ref times => Err(format!("{times:?} at {now}")),
    });
}

/// Values of the events below that no log may contain.
const SECRETS: [&str; 9] = [
    "11111111-2222-4333-8444-555555555555",
    "868049039501257",
    "1fe9a970efbb29e0",
    "8d3ebd3654fb46a2832296669cf1b536",
    "198.51.100.77",
    "2001:db8::77",
    "secret-click",
    "secret-event",
    "secret-agent",
];

fn message_with_secrets(app: &str, more: &str) -> Message {
    let [oaid, imei, android_id, md5, ip, _, click, event, agent] = SECRETS;
    let ids = format!(
        r#"{{"oaid":"{oaid}","imei":"{imei}","android_id":"{android_id}","idfa_md5":"{md5}"}}"#
    );
    Message::new(
        app,
        format!(
            r#"{{"app":"{app}","click_id":"{click}","event_id":"{event}","name":"buy","ids":{ids},"ip":"{ip}","ua":"{agent}",{more}}}"#
        ),
    )
}

#[test]
fn logs_are_json_and_contain_no_device_data() {
    let site = traffic::site("monitoring.logs", 2).flag("--log-format").flag("json");
    let good = r#""spreadid":1,"time":"2025-03-10T12:00:00Z""#;
    let bad = [
        r#""spreadid":1"#,
        r#""spreadid":"secret-click","time":1773144000001"#,
        r#""spreadid":1,"time":"198.51.100.77""#,
        r#""time":-1,"spreadid":1"#,
        r#""time":1773144000001,"spreadid":1,"props":{"secret-event":1},"params":{"a":["2001:db8::77"]}"#,
        r#""time":1773144000001,"spreadid":1,"type":"secret-agent""#,
        r#""time":1773144000001,"spreadid":1,"purpose":"secret-click""#,
        r#""time":1773144000001,"spreadid":1,"ids":"868049039501257""#,
        "\"time\":1,\"spreadid\":1,\"os\":\"\u{1}\"",
    ];
    for topic in site.topics.all() {
        Kafka::shared().produce(topic, [message_with_secrets("app-x", good)]);
        Kafka::shared().produce(topic, bad.map(|more| message_with_secrets("app-x", more)));
        let unknown = [
            message_with_secrets("app-q", good),
            message_with_secrets("app-x", &good.replace("2025", "9025")),
        ];
        Kafka::shared().produce(topic, unknown);
    }
    // At the most verbose level.
    let mut adtrail = site.spawn_with(&[("RUST_LOG", "trace")]);
    adtrail.await_ready().unwrap();
    adtrail.await_read(3 * 12);
    let app = "/v1/apps/app-x/events.csv";
    assert_eq!(adtrail.get(&format!("{app}?from={FROM}&to={TO}")).unwrap().status, 200);
    assert_eq!(adtrail.get(&format!("{app}?from=x&to={TO}")).unwrap().status, 400);
    let log = adtrail.stop();

    assert!(log.contains("adtrail runs"), "{log}");
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for field in ["timestamp", "level"] {
            assert!(entry[field].is_string(), "no {field}: {line}");
        }
        assert!(!line.contains('\u{1b}'), "colours: {line}");
        for secret in SECRETS {
            assert!(!line.contains(secret), "{secret} is in {line}");
        }
    }
}
