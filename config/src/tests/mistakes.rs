//! Tests of every error in the settings, with the complete message.
//!
//! The functions with many cases are excluded from rustfmt, so that each case is one line.

use std::path::Path;

use super::{CATALOGUE, pair};
use crate::{Sources, load, parse};

/// Compares the messages after removing the file name at the start of each.
#[track_caller]
pub(super) fn check_wrong(text: &str, expected: &str) {
    let message = parse(text).unwrap_err().to_string();
    assert_eq!(message.replace("adtrail.toml:", ""), expected);
}

#[track_caller]
fn check_wrong_catalogue(text: &str, expected: &str) {
    check_wrong(&format!("{CATALOGUE}{text}"), expected);
}

#[track_caller]
pub(super) fn check_variable(name: &str, value: &str, expected: &str) {
    let sources = Sources { environment: pair(name, value), ..Sources::default() };
    let message = load(&sources).unwrap_err().to_string();
    assert_eq!(message, format!("environment variable {name}: {expected}"));
}

#[track_caller]
fn check_flag(key: &str, value: &str, expected: &str) {
    let sources = Sources { flags: pair(key, value), ..Sources::default() };
    assert_eq!(load(&sources).unwrap_err().to_string(), format!("flag: {expected}"));
}

/// Checks that no message shows the secret in the settings.
#[track_caller]
fn check_hidden(text: &str) {
    let message = parse(text).unwrap_err().to_string();
    assert!(!message.contains("hunter2") && message.starts_with("adtrail.toml:"), "{message}");
}

#[test]
#[rustfmt::skip]
fn unknown_keys_are_reported_with_location_and_nearest_key() {
    check_wrong("[kafak]\n", "1: kafak: unknown key, the nearest known one is: kafka");
    check_wrong("kafka.brokerz = \"a\"", "1: kafka.brokerz: unknown key, the nearest known one is: brokers");
    check_wrong("[kafka]\ntopic = \"a\"", "2: kafka.topic: unknown key, the nearest known one is: clicks");
    check_wrong("[registry]\nurl = \"\"", "2: registry.url: unknown key, the nearest known one is: urls");
    check_wrong("[ingest]\nbatch_record_max = 1", "2: ingest.batch_record_max: unknown key, the nearest known one is: batch_records_max");
    check_wrong("[store]\n\npartition = 1", "3: store.partition: unknown key, the nearest known one is: partitions");
    check_wrong("[store.hbase]\nserver = 1", "2: store.hbase.server: unknown key, the nearest known one is: servers");
    check_wrong("[export]\nlisten_on = 1", "2: export.listen_on: unknown key, the nearest known one is: listen");
    check_wrong("[admin]\nlitsen = 1", "2: admin.litsen: unknown key, the nearest known one is: listen");
    check_wrong("[run]\ndeadline = 1", "2: run.deadline: unknown key, the nearest known one is: shutdown_deadline");
    check_wrong("[attribution]\nclick_windows = 1", "2: attribution.click_windows: unknown key, the nearest known one is: click_window");
    check_wrong("[fraud]\nblock_ip = 1", "2: fraud.block_ip: unknown key, the nearest known one is: block_ips");
    check_wrong("[[app]]\npid = 1", "1: app: unknown key, the nearest known one is: [[apps]]");
    check_wrong("[[campaign]]\nspreadid = 7", "1: campaign: unknown key, the nearest known one is: [[campaigns]]");
    check_wrong("[[channels]]\nid = \"unknown\"", "2: channels[0].id: expected another id: this one is reserved for campaigns that are not in the catalogue: \"unknown\"");
    check_wrong("[channel]\nid = \"c\"", "1: channel: unknown key, the nearest known one is: [[channels]]");
    check_wrong("[[tokenz]]\nid = 1", "1: tokenz: unknown key, the nearest known one is: [[tokens]]");
    check_wrong_catalogue("[[apps]]\npid = 2\nkey = \"y\"\nnam = 1", "10: apps[1].nam: unknown key, the nearest known one is: name");
    check_wrong_catalogue("[channels.attribution]\nprobabilistic = true", "8: channels[0].attribution.probabilistic: unknown key, the nearest known one is: attribution.probabilistic");
    check_wrong("\"a b\\n\" = 1", r#"1: "a b\n": unknown key, the nearest known one is: [[apps]]"#);
    // A key that exists in another table was probably meant for that table.
    check_wrong("click_window = \"7d\"", "1: click_window: unknown key, the nearest known one is: attribution.click_window");
    check_wrong("[kafka]\nretention = \"7d\"", "2: kafka.retention: unknown key, the nearest known one is: store.retention");
    check_wrong("[[apps]]\npid = 1\nkey = \"x\"\nblock_ips = []", "4: apps[0].block_ips: unknown key, the nearest known one is: fraud.block_ips");
}

#[test]
#[rustfmt::skip]
fn invalid_service_settings_are_rejected() {
    check_wrong("kafka = \"a:1\"", "1: kafka: expected a table of keys and values, found: a string");
    check_wrong("[[kafka]]\n", "1: kafka: expected a table of keys and values, found: a list");
    check_wrong("[kafka]\nbrokers = \"\"", r#"2: kafka.brokers: expected comma-separated brokers, such as "kafka-1:9092,kafka-2:9092": """#);
    check_wrong("[kafka]\nbrokers = [\"a:1\"]", r#"2: kafka.brokers: expected comma-separated brokers, such as "kafka-1:9092,kafka-2:9092": a list"#);
    check_wrong("[kafka]\ngroup = \" \"", r#"2: kafka.group: expected a group name: " ""#);
    check_wrong("[kafka]\ngroup = 5", "2: kafka.group: expected a quoted string: 5");
    check_wrong("[kafka]\nclicks = \"\"", r#"2: kafka.clicks: expected a topic name of 1 to 245 characters of a-z, A-Z, 0-9, '.', '_', '-': """#);
    check_wrong("[kafka]\nclicks = \"a b\"", r#"2: kafka.clicks: expected a topic name of 1 to 245 characters of a-z, A-Z, 0-9, '.', '_', '-': "a b""#);
    check_wrong("[kafka]\nclicks = \"..\"", r#"2: kafka.clicks: expected a topic name of 1 to 245 characters of a-z, A-Z, 0-9, '.', '_', '-': "..""#);
    check_wrong("[kafka]\nclicks = \"a\"\neffects = \"a\"", r#"3: kafka.effects: expected three different topics, kafka.clicks is the same: "a""#);
    check_wrong("[kafka]\nclicks = \"adtrail.effects\"", r#"2: kafka.clicks: expected three different topics, kafka.effects is the same: "adtrail.effects""#);
    check_wrong("[kafka]\nclicks = \"a\"\neffects = \"a.dlq\"", r#"3: kafka.effects: expected another topic than the dead-letter topic of kafka.clicks: "a.dlq""#);
    check_wrong("[kafka.librdkafka]\nacks = 0", "2: kafka.librdkafka.acks: cannot be set, because a dead letter counts once it is acknowledged by all: 0");
    check_wrong("[kafka.librdkafka]\n\"group.id\" = \"g\"", r#"2: kafka.librdkafka.group.id: cannot be set, because it is kafka.group: "g""#);
    check_wrong("[admin]\nlisten = \"127.0.0.1:8080\"", r#"2: admin.listen: expected another address than export.listen: "127.0.0.1:8080""#);
    check_wrong("[kafka.librdkafka]\na.b = 1\n\"a.b\" = 2", "3: kafka.librdkafka.a.b: set twice, also at 2: 2");
    check_wrong("[kafka.librdkafka]\ndebug = [1]", "2: kafka.librdkafka.debug: expected a string, a number or a boolean: a list");
    check_wrong("[kafka.librdkafka]\nsasl.password = { file = '/no/such' }", r#"2: kafka.librdkafka.sasl.password.file: the file cannot be read, No such file or directory (os error 2): "/no/such""#);
    check_wrong("[kafka.librdkafka]\nsasl.password = 'a'\n'sasl.password.file' = '/no/such'", "3: kafka.librdkafka.sasl.password: set twice, also at 2: (not shown)");
    check_wrong("[kafka.librdkafka]\ntransactional.id = 't'", r#"2: kafka.librdkafka.transactional.id: cannot be set, because the service does not use transactions: "t""#);
    check_wrong("[store]\nkind = \"hbase\"\n[kafka.librdkafka]\ngroup.protocol = \"consumer\"", r#"4: kafka.librdkafka.group.protocol: expected "classic", because store.kind = "hbase": "consumer""#);
    check_wrong("[kafka.librdkafka]\ngroup.id = { file = '/no/such' }", r#"2: kafka.librdkafka.group.id: cannot be set, because it is kafka.group: "/no/such""#);
    check_wrong("[ingest]\nbatch_records_max = 0", "2: ingest.batch_records_max: expected an integer from 1 to 1000000: 0");
    check_wrong("[ingest]\nevent_bytes_max = 1048577", "2: ingest.event_bytes_max: expected an integer from 1024 to 1048576: 1048577");
    check_wrong("[ingest]\nevent_bytes_max = 1023", "2: ingest.event_bytes_max: expected an integer from 1024 to 1048576: 1023");
    check_wrong("[ingest]\nbatch_bytes_max = \"8MiB\"", r#"2: ingest.batch_bytes_max: expected an integer from 1 to 1073741824: "8MiB""#);
    check_wrong("[ingest]\nbatch_age_max = 200", r#"2: ingest.batch_age_max: no unit, expected one of ms, s, m, h, d, w as in "7d": 200"#);
    check_wrong("[store]\nkind = \"rocksdb\"", r#"2: store.kind: expected "embedded" or "hbase": "rocksdb""#);
    check_wrong("[store]\npath = \"\"", r#"2: store.path: expected a path: """#);
    check_wrong("[store]\npartitions = 0", "2: store.partitions: expected an integer from 1 to 65535: 0");
    check_wrong("[store]\nregion_bytes_max = 1", "2: store.region_bytes_max: expected an integer from 65536 to 1099511627776: 1");
    check_wrong("[store]\nfanout_above = -1", "2: store.fanout_above: expected an integer from 0 to 1000000: -1");
    check_wrong(
        "[[apps]]\npid = 1\nkey = \"a\"\n[apps.store]\nfanout = 3",
        "5: apps[0].store.fanout: expected a power of two: 1, 2, 4, 8 …: 3",
    );
    check_wrong(
        "[store]\npartitions = 9\n[[apps]]\npid = 1\nkey = \"a\"\n[apps.store]\nfanout = 16",
        "7: apps[0].store.fanout: expected at most store.partitions, which is 9: 16",
    );
    check_wrong(
        "[[apps]]\npid = 1\nkey = \"a\"\n[apps.store]\nretention = \"0d\"",
        r#"5: apps[0].store.retention: zero, expected a longer duration or "off": "0d""#,
    );
    check_wrong("[store]\npartitions = 65536", "2: store.partitions: expected an integer from 1 to 65535: 65536");
    check_wrong("[store]\npartitions = 64.0", "2: store.partitions: expected an integer from 1 to 65535: 64.0");
    check_wrong("[store]\npartitions = \"64\"", r#"2: store.partitions: expected an integer from 1 to 65535: "64""#);
    check_wrong("[store]\npartitions = 18446744073709551680", "2: store.partitions: expected an integer from 1 to 65535: 18446744073709551680");
    check_wrong("[store]\nretention = \"0d\"", r#"2: store.retention: zero, expected a longer duration or "off": "0d""#);
    check_wrong("[store]\nretention = \"11y\"", r#"2: store.retention: expected one whole number and a unit of ms, s, m, h, d, w, such as "7d" or "off": "11y""#);
    check_wrong("[store]\nmemory = \"32767KiB\"", r#"2: store.memory: too little, expected at least "32MiB": "32767KiB""#);
    check_wrong("[store]\nmemory = \"1025GiB\"", r#"2: store.memory: too much, expected at most "1024GiB": "1025GiB""#);
    check_wrong("[store]\nmemory = 448", r#"2: store.memory: no unit, expected one of KiB, MiB, GiB as in "448MiB": 448"#);
    check_wrong("[store]\nmemory = \"1GB\"", r#"2: store.memory: expected one whole number and a unit of KiB, MiB, GiB, such as "448MiB": "1GB""#);
    check_wrong("[store.hbase]\nservers = \"a:1\"", r#"2: store.hbase.servers: expected a list of strings, such as ["a", "b"]: "a:1""#);
    check_wrong("[store.hbase]\nservers = []", r#"2: store.hbase.servers: expected at least one server, such as "master-1:16000": []"#);
    check_wrong("[store.hbase]\nservers = [\"a\"]", r#"2: store.hbase.servers[0]: expected a host and its RPC port, such as "master-1:16000": "a""#);
    check_wrong("[store.hbase]\nservers = [\"http://a:1\"]", r#"2: store.hbase.servers[0]: expected a host and its RPC port, such as "master-1:16000": "http://a:1""#);
    check_wrong("[store.hbase]\nprefix = \"a b\"", r#"2: store.hbase.prefix: expected at most 200 characters of a-z, A-Z, 0-9, '_', '-', '.', optionally with a namespace, such as "ads:adtrail": "a b""#);
    check_wrong("[store.hbase]\nuser = \"\"", r#"2: store.hbase.user: expected a name of 1 to 200 bytes: """#);
    check_wrong("[store.hbase]\nca = \"a.pem\"", "2: store.hbase.ca: requires store.hbase.tls = true");
    check_wrong("[store.hbase]\ntls = true\nkey = \"k\"", "3: store.hbase.key: requires store.hbase.certificate");
    check_wrong("[export]\nlisten = 8080", r#"2: export.listen: expected an IP address and a port, such as "127.0.0.1:8080": 8080"#);
    check_wrong("[admin]\nlisten = \"localhost\"", r#"2: admin.listen: expected an IP address and a port, such as "127.0.0.1:8080": "localhost""#);
    check_wrong("[run]\nshutdown_deadline = \"-30s\"", r#"2: run.shutdown_deadline: negative, expected a duration such as "7d": "-30s""#);
}

#[test]
#[rustfmt::skip]
fn invalid_rules_are_rejected() {
    check_wrong("[attribution]\nprobabilistic = \"yes\"", r#"2: attribution.probabilistic: expected true or false: "yes""#);
    check_wrong("[attribution]\nclock_skew = \"off\"", r#"2: attribution.clock_skew: expected one whole number and a unit of ms, s, m, h, d, w, such as "7d": "off""#);
    check_wrong("[attribution]\nreinstall_effects = \"none\"", r#"2: attribution.reinstall_effects: expected "original" or "organic": "none""#);
    check_wrong("[attribution]\nworkers = 0", "2: attribution.workers: expected an integer from 1 to 64: 0");
    check_wrong("[attribution]\nworkers = 65", "2: attribution.workers: expected an integer from 1 to 64: 65");
    check_wrong("[[apps]]\npid = 1\nkey = \"x\"\n[apps.attribution]\nworkers = 2", "5: apps[0].attribution.workers: unknown key, the nearest known one is: attribution.workers");
    check_wrong("[fraud]\nctit_min = \"10\"", r#"2: fraud.ctit_min: no unit, expected one of ms, s, m, h, d, w as in "7d": "10""#);
    check_wrong("[fraud]\nclicks_per_device_max = 4294967296", "2: fraud.clicks_per_device_max: expected an integer from 0 to 4294967295: 4294967296");
    check_wrong("[fraud]\nblock_ips = [\"10.0.0.0/8\",\n\"10.0.0.0/33\"]", r#"3: fraud.block_ips[1]: expected an IP address or a CIDR range, such as "203.0.113.0/24": "10.0.0.0/33""#);
    check_wrong("[fraud]\nblock_ips = \"10.0.0.0/8\"", r#"2: fraud.block_ips: expected a list of strings, such as ["a", "b"]: "10.0.0.0/8""#);
    check_wrong("[fraud]\nblock_sites = [\"\"]", r#"2: fraud.block_sites[0]: expected a site: """#);
    check_wrong("[fraud]\nallow_sites = [5]", "2: fraud.allow_sites[0]: expected a quoted string: 5");
    check_wrong("[fraud]\nblock_devices = [\"oiad:1fe9a970\"]", r#"2: fraud.block_devices[0]: expected "kind:value" with a kind of oaid, gaid, idfa, caid, idfv, imei, android_id, mac, each also with _md5, and a value that identifies a device: (not shown)"#);
    check_wrong("[fraud]\nblock_devices = \"oaid:1fe9a970\"", r#"2: fraud.block_devices: expected a list of strings, such as ["a", "b"]: (not shown)"#);
    check_wrong("[fraud]\nallow_channels = [\"a\"]", r#"2: fraud.allow_channels[0]: expected the id of one of the [[channels]], but none is defined: "a""#);
    check_wrong_catalogue("[fraud]\nallow_channels = [\"tiutiao\"]", r#"8: fraud.allow_channels[0]: expected the id of one of the [[channels]], the nearest is "toutiao": "tiutiao""#);
    check_wrong("[[apps]]\npid = 1\nkey = \"x\"\n[apps.fraud]\nblock_ips = [\"\"]", r#"5: apps[0].fraud.block_ips[0]: expected an IP address or a CIDR range, such as "203.0.113.0/24": """#);
}

/// `parse/duration.rs` tests more texts.
#[test]
#[rustfmt::skip]
fn invalid_durations_and_other_types_are_rejected() {
    let whole = r#"expected one whole number and a unit of ms, s, m, h, d, w, such as "7d""#;
    let check = |value: &str, problem: &str| check_wrong(&format!("[attribution]\nclick_window = {value}"), &format!("2: attribution.click_window: {problem}"));
    check("7", r#"no unit, expected one of ms, s, m, h, d, w as in "7d": 7"#);
    check("-7", r#"negative, expected a duration such as "7d": -7"#);
    check("\"3651d\"", r#"too long, expected at most "3650d": "3651d""#);
    for value in ["\"7 d\"", "7.5", "inf", "2026-03-10"] { check(value, &format!("{whole}: {value}")); }
    check("[\"7d\"]", &format!("{whole}: a list"));
    check("{ d = 7 }", &format!("{whole}: a table"));
    check_wrong("[attribution]\nclick_window = 7d", "2: not TOML, column 16: string values must be quoted, expected literal string");
    check_wrong("[attribution]\ncorrection_horizon = \"0s\"", r#"2: attribution.correction_horizon: zero, expected a longer duration or "off": "0s""#);
    check_wrong("[attribution]\ncorrection_horizon = false", &format!(r#"2: attribution.correction_horizon: {whole} or "off": false"#));
    check_wrong("[attribution]\neffect_window = \"off\"", &format!(r#"2: attribution.effect_window: {whole}: "off""#));
}

/// The error is reported at the key that was set last.
#[test]
#[rustfmt::skip]
fn a_reattribution_window_shorter_than_duplicate_within_is_rejected() {
    const APP: &str = "[[apps]]\npid = 1\nkey = \"x\"\n[apps.attribution]\n";
    check_wrong("[attribution]\nreattribution_window = \"1h\"\nduplicate_within = \"90m\"", r#"3: attribution.duplicate_within: expected at most reattribution_window, which is "1h": "90m""#);
    check_wrong("[attribution]\nduplicate_within = \"90m\"\nreattribution_window = \"1h\"", r#"3: attribution.reattribution_window: expected at least duplicate_within, which is "90m": "1h""#);
    check_wrong("[attribution]\nreattribution_window = \"0s\"", r#"2: attribution.reattribution_window: expected at least duplicate_within, which is "1m": "0s""#);
    check_wrong(&format!("{APP}duplicate_within = \"100d\""), r#"5: apps[0].attribution.duplicate_within: expected at most reattribution_window, which is "90d": "100d""#);
    check_wrong(&format!("[attribution]\nduplicate_within = \"1h\"\n{APP}reattribution_window = \"59m\""), r#"7: apps[0].attribution.reattribution_window: expected at least duplicate_within, which is "1h": "59m""#);
    check_wrong(&format!("[attribution]\nreattribution_window = \"1h\"\n{APP}duplicate_within = \"61m\""), r#"7: apps[0].attribution.duplicate_within: expected at most reattribution_window, which is "1h": "61m""#);
    check_variable("ADTRAIL__ATTRIBUTION__DUPLICATE_WITHIN", "91d", r#"attribution.duplicate_within: expected at most reattribution_window, which is "90d": "91d""#);
    // Equal values are valid, an app may correct inherited values, and an invalid value is reported only once.
    assert!(parse(&format!("[attribution]\nreattribution_window = \"1h\"\n{APP}duplicate_within = \"1h\"")).is_ok());
    assert!(parse(&format!("{APP}reattribution_window = \"0s\"\nduplicate_within = \"0s\"")).is_ok());
    check_wrong("[attribution]\nreattribution_window = \"100\"\nduplicate_within = \"91d\"", r#"2: attribution.reattribution_window: no unit, expected one of ms, s, m, h, d, w as in "7d": "100""#);
}

#[test]
#[rustfmt::skip]
fn each_invalid_list_entry_is_reported() {
    let range = r#"expected an IP address or a CIDR range, such as "203.0.113.0/24""#;
    let text = "[fraud]\nblock_ips = [\"10.0.0.0/8\", \"a\", \"::/129\", 5, \" 10.0.0.1\", \"10.0.0.0/-1\"]";
    let wrong = [(1, "\"a\""), (2, "\"::/129\""), (3, "5"), (4, "\" 10.0.0.1\""), (5, "\"10.0.0.0/-1\"")];
    check_wrong(text, &wrong.map(|(index, shown)| format!("2: fraud.block_ips[{index}]: {range}: {shown}")).join("\n"));
    let device = "expected \"kind:value\" with a kind of oaid, gaid, idfa, caid, idfv, imei, android_id, mac, each also with _md5, and a value that identifies a device: (not shown)";
    for bad in ["oaid", ":", "oaid:", "oaid:0", "OAID:d-1", "click_id:c-1", "imei_md5:d-1", "", "oaid:null", "oaid:00000000-0000-0000-0000-000000000000"] {
        check_wrong(&format!("[fraud]\nblock_devices = [\"oaid:d-1\", {bad:?}]"), &format!("2: fraud.block_devices[1]: {device}"));
    }
}

#[test]
#[rustfmt::skip]
fn invalid_catalogues_are_rejected() {
    let long_key = "k".repeat(101);
    check_wrong("apps = \"x\"", r#"1: apps: expected tables [[apps]], which are allowed only in the file: "x""#);
    check_wrong("[apps]\npid = 1", "1: apps: expected tables [[apps]], which are allowed only in the file: a table");
    check_wrong("apps = [1]", "1: apps[0]: expected a table: 1");
    check_wrong("[[apps]]\nkey = \"x\"", "1: apps[0].pid: missing, expected the app's number");
    check_wrong("[[apps]]\npid = 1", "1: apps[0].key: missing, expected the app's key, as events name it");
    check_wrong("[[apps]]\npid = -1\nkey = \"x\"", "2: apps[0].pid: expected an integer from 0 to 4294967295: -1");
    check_wrong("[[apps]]\npid = 1\nkey = \"..\"", r#"3: apps[0].key: expected an app key of 1 to 100 characters that is valid in a URL path: no slash, no control character, not "." or "..": "..""#);
    check_wrong("[[apps]]\npid = 1\nkey = \"a/b\"", r#"3: apps[0].key: expected an app key of 1 to 100 characters that is valid in a URL path: no slash, no control character, not "." or "..": "a/b""#);
    check_wrong(&format!("[[apps]]\npid = 1\nkey = \"{long_key}\""), &format!( "3: apps[0].key: expected an app key of 1 to 100 characters that is valid in a URL path: no slash, no control character, not \".\" or \"..\": \"{long_key}\"" ));
    check_wrong_catalogue("[[apps]]\npid = 1\nkey = \"y\"", "8: apps[1].pid: expected a unique value, 2 has the same: 1");
    check_wrong_catalogue("[[apps]]\npid = 2\nkey = \"app-x\"", r#"9: apps[1].key: expected a unique value, 3 has the same: "app-x""#);
    check_wrong_catalogue("[[channels]]\nid = \"toutiao\"", r#"8: channels[1].id: expected a unique value, 6 has the same: "toutiao""#);
    check_wrong_catalogue("[[channels]]\nid = \"\"", r#"8: channels[1].id: expected a non-empty id: """#);
    check_wrong_catalogue("[[channels]]\n", "7: channels[1].id: missing, expected the channel's id");
    check_wrong_catalogue("[[campaigns]]\n", "7: campaigns[0].spreadid: missing, expected the campaign's number\n7: campaigns[0].pid: missing, expected the number of one of the [[apps]]\n7: campaigns[0].channel: missing, expected the id of one of the [[channels]]");
    check_wrong_catalogue("[[campaigns]]\nspreadid = 0\npid = 1\nchannel = \"toutiao\"", "8: campaigns[0].spreadid: expected an integer from 1 to 4294967295: 0");
    check_wrong_catalogue("[[campaigns]]\nspreadid = 4294967296\npid = 1\nchannel = \"toutiao\"", "8: campaigns[0].spreadid: expected an integer from 1 to 4294967295: 4294967296");
    check_wrong_catalogue("[[campaigns]]\nspreadid = 7\npid = 3\nchannel = \"toutiao\"", "9: campaigns[0].pid: expected the pid of one of the [[apps]], which is 1: 3");
    check_wrong("[[channels]]\nid = \"c\"\n[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"c\"", "5: campaigns[0].pid: expected the pid of one of the [[apps]], but none is defined: 1");
    check_wrong_catalogue("[[apps]]\npid = 2\nkey = \"y\"\n[[campaigns]]\nspreadid = 7\npid = 3\nchannel = \"toutiao\"", "12: campaigns[0].pid: expected the pid of one of the [[apps]], which is 1 or 2: 3");
    check_wrong_catalogue("[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutaio\"", r#"10: campaigns[0].channel: expected the id of one of the [[channels]], the nearest is "toutiao": "toutaio""#);
    check_wrong_catalogue("[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"", "12: campaigns[1].spreadid: expected a unique value, 8 has the same: 7");
    check_wrong_catalogue("[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n[campaigns.attribution]\nclick_window = \"7\"", r#"12: campaigns[0].attribution.click_window: no unit, expected one of ms, s, m, h, d, w as in "7d": "7""#);
}

#[test]
#[rustfmt::skip]
fn invalid_variables_and_flags_are_rejected() {
    check_variable("ADTRAIL__KAFKA__BROKERZ", "a", "kafka.brokerz: unknown key, the nearest known one is: brokers");
    check_variable("ADTRAIL__KAFKA__", "a", "kafka.: unknown key, the nearest known one is: group");
    check_variable("ADTRAIL__KAFKA__BROKERS__0", "a", r#"kafka.brokers: expected comma-separated brokers, such as "kafka-1:9092,kafka-2:9092": a table"#);
    check_variable("ADTRAIL__KAFKA", "a", "kafka: expected a table of keys and values, found: a string");
    check_variable("ADTRAIL__STORE__PARTITIONS", "many", r#"store.partitions: expected an integer from 1 to 65535: "many""#);
    check_variable("ADTRAIL__STORE__PARTITIONS", "", r#"store.partitions: expected an integer from 1 to 65535: """#);
    check_variable("ADTRAIL__ATTRIBUTION__PROBABILISTIC", "1", r#"attribution.probabilistic: expected true or false: "1""#);
    check_variable("ADTRAIL__FRAUD__BLOCK_IPS", "10.0.0.0/8", r#"fraud.block_ips: expected a list of strings, such as ["a", "b"]: "10.0.0.0/8""#);
    check_variable("ADTRAIL__FRAUD__BLOCK_IPS", "[\"x\"]", r#"fraud.block_ips[0]: expected an IP address or a CIDR range, such as "203.0.113.0/24": "x""#);
    check_variable("ADTRAIL__ATTRIBUTION__CLICK_WINDOW", "", r#"attribution.click_window: expected one whole number and a unit of ms, s, m, h, d, w, such as "7d": """#);
    check_variable("ADTRAIL__CAMPAIGNS", "[{ spreadid = 7 }]", "campaigns: expected tables [[campaigns]], which are allowed only in the file: \"[{ spreadid = 7 }]\"");
    check_variable("ADTRAIL__APPS__0__KEY", "x", "apps: expected tables [[apps]], which are allowed only in the file: a table");
    check_flag("store.partitions", "0", r#"store.partitions: expected an integer from 1 to 65535: "0""#);
    check_flag("store.partition", "1", "store.partition: unknown key, the nearest known one is: partitions");
    check_flag("Store.path", "a", "Store: unknown key, the nearest known one is: store");
}

#[test]
#[rustfmt::skip]
fn one_mistake_gives_one_message() {
    let campaign = "[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"c\"\n";
    check_wrong(&format!("[[apps]]\npid = 1\nkey = \"\"\n[[channels]]\nid = \"c\"\n{campaign}"), r#"3: apps[0].key: expected an app key of 1 to 100 characters that is valid in a URL path: no slash, no control character, not "." or "..": """#);
    check_wrong(&format!("[[apps]]\npid = 1\nkey = \"x\"\n[[channels]]\nid = 5\n{campaign}"), "5: channels[0].id: expected a quoted string: 5");
}

#[test]
fn all_mistakes_are_reported_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.toml");
    std::fs::write(&path, "[store]\npartitions = 0\n[kafka]\nclick = \"a\"\n[[campaigns]]\nspreadid = 1\npid = 1\nchannel = \"c\"\n").unwrap();
    let sources = Sources {
        file: Some(&path),
        environment: pair("ADTRAIL__ADMIN__LISTEN", "here"),
        flags: pair("export.listen", "there"),
    };
    let errors = load(&sources).unwrap_err();
    let message = errors.to_string().replace(path.to_str().unwrap(), "f.toml");
    let begins = [
        "f.toml:2: store.partitions: ",
        "f.toml:4: kafka.click: ",
        "f.toml:7: campaigns[0].pid: ",
        "f.toml:8: campaigns[0].channel: ",
        "environment variable ADTRAIL__ADMIN__LISTEN: admin.listen: ",
        "flag: export.listen: ",
    ];
    assert_eq!(errors.iter().count(), begins.len());
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), begins.len(), "{message}");
    assert!(lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{message}");
}

#[test]
#[rustfmt::skip]
fn secrets_are_never_shown() {
    check_hidden("[kafka.librdkafka]\nsasl.password = 'hunter2'\n'sasl.password' = 'hunter2'");
    check_hidden("[kafka.librdkafka]\n'SSL.Key.PEM' = ['hunter2']");
    check_hidden("[kafka]\nlibrdkafka = 'sasl.password=hunter2'");
    check_hidden("[kafka]\nsasl_password = 'hunter2'");
    check_hidden("kafka = 'hunter2'");
    check_hidden("[kafka.librdkafka]\nsasl.password = 'hunter2");
    check_hidden("[kafka.librdkafka]\nsasl.password = hunter2");
    check_hidden("[fraud]\nblock_devices = ['oaid:0', 'hunter2', 5]");
    let text = "[kafka.librdkafka]\nsasl.password = 'hunter2'\nssl.key.pem = 'hunter2'\nclient.SECRET = 'hunter2'\ndebug = 'broker'";
    let shown = format!("{:?}", parse(text).unwrap());
    assert!(
        !shown.contains("hunter2") && shown.contains("broker") && shown.contains("sasl.password"),
        "{shown}"
    );
}

#[test]
fn unreadable_files_are_reported_with_their_path() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent.toml");
    let unreadable = |path: &Path| {
        load(&Sources { file: Some(path), ..Sources::default() }).unwrap_err().to_string()
    };
    assert!(
        unreadable(&absent)
            .starts_with(&format!("{}: the file cannot be read: ", absent.display()))
    );
    assert!(unreadable(directory.path()).contains(": the file cannot be read: "));
}
