//! Tests of layers, windows, overrides, and the settings files in the repository.

mod callbacks;
mod changes;
mod collect;
mod include;
mod mistakes;
mod registry;
mod tokens;

use std::path::Path;
use std::time::Duration;

use attribution::facts::event::{Pid, SpreadId};
use attribution::outbox::interest::LateCredit;
use attribution::rules::policy::{
    AppPolicy, DAY_MS, Fraud, HOUR_MS, Origin, ReinstallEffects, Windows,
};

use super::*;

const EXAMPLE: &str = include_str!("../../example.toml");
const COMPOSE: &str = include_str!("../../compose.toml");

/// One app and one channel, six lines long.
const CATALOGUE: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n\n[[channels]]\nid = \"toutiao\"\n";

fn pair(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.into(), value.into())]
}

#[track_caller]
fn check_brokers(file: &str, variable: Option<&str>, flag: Option<&str>, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.toml");
    std::fs::write(&path, file).unwrap();
    let layer = |key: &str, value: Option<&str>| value.map_or(vec![], |value| pair(key, value));
    let sources = Sources {
        file: Some(&path),
        environment: layer("ADTRAIL__KAFKA__BROKERS", variable),
        flags: layer("kafka.brokers", flag),
    };
    assert_eq!(load(&sources).unwrap().kafka.brokers, expected);
}

/// Sets `click_window` at each level for which days are passed, and checks the windows of the app and the campaign.
#[track_caller]
fn check_click_window(levels: [Option<u64>; 4], app_days: u64, campaign_days: u64) {
    let [default, app, channel, campaign] = levels.map(|days| match days {
        Some(days) => format!("click_window = \"{days}d\"\n"),
        None => String::new(),
    });
    let config = parse(&format!(
        "[attribution]\n{default}\n[[apps]]\npid = 1\nkey = \"x\"\n[apps.attribution]\n{app}\n\
         [[channels]]\nid = \"c\"\n[channels.attribution]\n{channel}\n\
         [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"c\"\n[campaigns.attribution]\n{campaign}"
    ));
    let policy = config.unwrap().policy;
    assert_eq!(policy.app(Pid(1)).unwrap().windows.click_ms, app_days * DAY_MS);
    let campaign = policy.campaign(Pid(1), SpreadId(7)).unwrap();
    assert_eq!(campaign.windows.click_ms, campaign_days * DAY_MS);
}

fn app(config: &Config, pid: u32) -> &AppPolicy {
    config.policy.app(Pid(pid)).unwrap()
}

#[test]
fn later_layers_override_earlier_ones() {
    check_brokers("", None, None, "127.0.0.1:9092");
    check_brokers("[kafka]\nbrokers = \"file:1\"", None, None, "file:1");
    check_brokers("[kafka]\nbrokers = \"file:1\"", Some("env:1,env:2"), None, "env:1,env:2");
    check_brokers("", Some("\"env:1\""), None, "env:1");
    check_brokers("[kafka]\nbrokers = \"file:1\"", Some("env:1"), Some("flag:1"), "flag:1");
    check_brokers("[kafka]\nbrokers = \"file:1\"", None, Some("flag:1"), "flag:1");
    // An overridden invalid value is ignored.
    check_brokers("[kafka]\nbrokers = 5", Some("env:1"), None, "env:1");
}

#[test]
fn the_key_determines_the_type_of_a_variable() {
    let set = |key: &str, value: &str| (format!("ADTRAIL__{key}"), String::from(value));
    let environment = vec![
        set("KAFKA__GROUP", "123"),
        set("STORE__PARTITIONS", "0x10"),
        set("STORE__RETENTION", "off"),
        set("ATTRIBUTION__PROBABILISTIC", "true"),
        set("FRAUD__BLOCK_SITES", "['a', \"b\"]"),
        set("KAFKA__LIBRDKAFKA__SASL_PASSWORD", "12#34"),
        set("KAFKA__LIBRDKAFKA__FETCH_MIN_BYTES", "1"),
        ("ADTRAIL_LOG".into(), "debug".into()),
        ("HOME".into(), "/".into()),
    ];
    let text = format!("{CATALOGUE}[kafka.librdkafka]\nsasl.password = 'file'\ndebug = 'all'\n");
    let mut table = tree::parse_file("f.toml", text.as_bytes()).unwrap();
    let flags = pair("kafka.librdkafka.fetch.min.bytes", "2");
    layers::overlay(&mut table, &environment, &flags);
    let config = read(table, "f.toml", None).0.unwrap();
    assert_eq!((config.kafka.group.as_str(), config.store.partitions), ("123", 16));
    assert_eq!(config.store.retention_ms, None);
    assert!(app(&config, 1).probabilistic);
    assert_eq!(app(&config, 1).fraud.block_sites, ["a".into(), "b".into()]);
    let librdkafka: Vec<(&str, &str)> =
        config.kafka.librdkafka.iter().map(|(key, value)| (key.as_str(), value.expose())).collect();
    assert_eq!(
        librdkafka,
        [("debug", "all"), ("fetch.min.bytes", "2"), ("sasl.password", "12#34")]
    );
}

#[test]
fn librdkafka_keys_may_be_quoted() {
    let config = parse(
        "[kafka.librdkafka]\nfetch.min.bytes = 5\n\"fetch.max.bytes\" = 6\nssl.a = true\nssl.b = 0.5\n",
    );
    let values = config.unwrap().kafka.librdkafka;
    let values: Vec<_> =
        values.iter().map(|(key, value)| format!("{key}={}", value.expose())).collect();
    assert_eq!(values, ["fetch.max.bytes=6", "fetch.min.bytes=5", "ssl.a=true", "ssl.b=0.5"]);
}

#[test]
fn values_of_librdkafka_can_be_in_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (password, key) = (path("password", "hunter2\n"), path("key", "BEGIN\nhunter3\nEND\n"));
    let text = format!(
        "[kafka.librdkafka]\nsasl.password = {{ file = {password:?} }}\n\
         \"ssl.key.pem\" = {{ file = {key:?} }}\nssl.ca.location = 'file'\nsasl.username = ''\n\
         sasl.oauthbearer.assertion.file = '/own'"
    );
    let environment = vec![
        ("ADTRAIL__KAFKA__LIBRDKAFKA__DEBUG".into(), format!("{{ file = {password:?} }}")),
        ("ADTRAIL__KAFKA__LIBRDKAFKA__SSL_CA_LOCATION_FILE".into(), key),
    ];
    let mut table = tree::parse_file("f.toml", text.as_bytes()).unwrap();
    layers::overlay(&mut table, &environment, &[]);
    let kafka = read(table, "f.toml", None).0.unwrap().kafka;
    let values: Vec<_> =
        kafka.librdkafka.iter().map(|(key, value)| (&**key, value.expose())).collect();
    let pem = "BEGIN\nhunter3\nEND";
    let expected = [
        ("debug", "hunter2"),
        ("sasl.oauthbearer.assertion.file", "/own"),
        ("sasl.password", "hunter2"),
        ("sasl.username", ""),
        ("ssl.ca.location", pem),
        ("ssl.key.pem", pem),
    ];
    assert_eq!(values, expected);
    let shown = format!("{kafka:?}");
    assert!(!shown.contains("hunter") && shown.contains("not shown"), "{shown}");
}

#[test]
fn windows_come_from_the_nearest_level() {
    check_click_window([None, None, None, None], 7, 7);
    check_click_window([Some(1), None, None, None], 1, 1);
    check_click_window([Some(1), Some(2), None, None], 2, 2);
    check_click_window([Some(1), Some(2), Some(3), None], 2, 3);
    check_click_window([Some(1), Some(2), Some(3), Some(4)], 2, 4);
    check_click_window([None, Some(2), None, Some(4)], 2, 4);
    check_click_window([Some(1), None, Some(3), None], 1, 3);
}

#[test]
fn probabilistic_windows_are_limited_to_a_day() {
    let campaign = "[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n[campaigns.attribution]\nclick_probabilistic_window = \"48h\"\nimpression_probabilistic_window = \"48h\"\n";
    let config = parse(&format!(
        "{CATALOGUE}[attribution]\nclick_probabilistic_window = \"25h\"\n{campaign}"
    ))
    .unwrap();
    assert_eq!(app(&config, 1).windows.click_probabilistic_ms, DAY_MS);
    let windows = config.policy.campaign(Pid(1), SpreadId(7)).unwrap().windows;
    let expected = Windows {
        click_probabilistic_ms: DAY_MS,
        impression_probabilistic_ms: DAY_MS,
        origins: [Origin::Default, Origin::Campaign, Origin::Default, Origin::Campaign],
        ..Windows::default()
    };
    assert_eq!(windows, expected);
}

#[test]
fn valid_but_probably_unintended_settings_are_warnings() {
    let campaign = "[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n[campaigns.attribution]\nclick_probabilistic_window = \"25h\"\n";
    let consequence =
        "reduced to \"24h\", the maximum for touches that are matched probabilistically";
    let text = format!(
        "{CATALOGUE}{campaign}[attribution]\nclick_probabilistic_window = \"48h\"\nimpression_probabilistic_window = \"2d\"\n"
    );
    let mut table = tree::parse_file("f.toml", text.as_bytes()).unwrap();
    let expected = [
        format!(
            "f.toml:12: campaigns[0].attribution.click_probabilistic_window: {consequence}: \"25h\""
        ),
        format!("f.toml:14: attribution.click_probabilistic_window: {consequence}: \"48h\""),
        format!("f.toml:15: attribution.impression_probabilistic_window: {consequence}: \"2d\""),
    ];
    let warnings = |table: Table| -> Vec<String> {
        read(table, "f.toml", None).0.unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    layers::overlay(&mut table, &[], &[]);
    assert_eq!(warnings(table), expected);
    let name = "ADTRAIL__ATTRIBUTION__CLICK_PROBABILISTIC_WINDOW";
    let mut table = Table::new();
    layers::overlay(&mut table, &pair(name, "24h"), &[]);
    assert_eq!(warnings(table), [""; 0]);
    let mut table = Table::new();
    layers::overlay(&mut table, &pair(name, "1441m"), &[]);
    let expected = format!(
        "environment variable {name}: attribution.click_probabilistic_window: {consequence}: \"1441m\""
    );
    assert_eq!(warnings(table), [expected]);
}

#[test]
fn an_admin_listener_that_other_machines_reach_is_a_warning() {
    let warnings =
        |listen: &str| parse(&format!("[admin]\nlisten = \"{listen}\"\n")).unwrap().warnings;
    for listen in ["0.0.0.0:8081", "[::]:8081", "192.0.2.1:8081"] {
        let expected = format!(
            "adtrail.toml:2: admin.listen: every client that reaches this address can, without a token, reload the \
             settings, change the log level, and read metrics with the names of apps, channels and topics, and the \
             state of the service: \"{listen}\""
        );
        assert_eq!(warnings(listen), [expected.into()]);
    }
    for listen in ["127.0.0.1:8081", "127.9.9.9:8081", "[::1]:8081"] {
        assert!(warnings(listen).is_empty(), "{listen}");
    }
}

#[test]
fn memory_is_parsed_as_a_size() {
    let memory = |text: &str| parse(text).unwrap().store.memory_bytes;
    assert_eq!(memory(""), 448 << 20);
    assert_eq!(memory("[store]\nmemory = \"32MiB\""), 32 << 20);
    assert_eq!(memory("[store]\nmemory = \"2097152KiB\""), 2 << 30);
    assert_eq!(memory("[store]\nmemory = \"1024GiB\""), 1 << 40);
}

#[test]
fn unusual_windows_are_accepted() {
    let zero = "[attribution]\nclick_window = \"0s\"\nclick_probabilistic_window = \"0s\"\n\
        impression_window = \"0s\"\nimpression_probabilistic_window = \"0s\"\n\
        duplicate_within = \"0s\"\nreattribution_window = \"0s\"\nclock_skew = \"0s\"\neffect_window = \"0s\"\n";
    let config = parse(&format!("{CATALOGUE}{zero}")).unwrap();
    let rules = app(&config, 1);
    let times = [rules.reattribution_window_ms, rules.clock_skew_ms, rules.effect_window_ms];
    assert_eq!((rules.windows.click_ms, rules.windows.impression_ms, times), (0, 0, [0; 3]));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    // Only a touch's own lookback is limited to 90 days; rows may be kept for less than a window.
    let long = "[attribution]\nclick_window = \"3650d\"\neffect_window = \"1ms\"\n[store]\nretention = \"1h\"\n";
    let config = parse(&format!("{CATALOGUE}{long}")).unwrap();
    assert_eq!(app(&config, 1).windows.click_ms, 3650 * DAY_MS);
    assert_eq!(config.store.retention_ms, Some(HOUR_MS));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn apps_override_the_rules_for_all() {
    let config = parse(
        "[attribution]\nprobabilistic = true\nclock_skew = \"1m\"\ncorrection_horizon = \"off\"\n\
         [fraud]\nctit_min = \"10s\"\nblock_ips = [\"10.0.0.0/8\", \"::1\"]\nblock_sites = [\"s\"]\n\
         [[channels]]\nid = \"c\"\n[[apps]]\npid = 0\nkey = \"x\"\n[[apps]]\npid = 2\nkey = \"y\"\nname = \"Y\"\n\
         previous_key = \"z\"\n\
         [apps.attribution]\nprobabilistic = false\ncorrection_horizon = \"1d\"\nreinstall_effects = \"organic\"\n\
         [apps.fraud]\nblock_ips = []\nclicks_per_device_max = 50\nallow_channels = [\"c\"]\n\
         block_devices = [\"oaid:1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5\", \"android_id:7b5ca2d57178d2f1\"]\n",
    );
    let config = config.unwrap();
    let (x, y) = (app(&config, 0), app(&config, 2));
    assert_eq!((x.probabilistic, x.clock_skew_ms, x.correction_horizon_ms), (true, 60_000, None));
    assert_eq!(
        (y.probabilistic, y.clock_skew_ms, y.correction_horizon_ms),
        (false, 60_000, Some(DAY_MS))
    );
    assert_eq!(
        (x.reinstall_effects, y.reinstall_effects),
        (ReinstallEffects::Original, ReinstallEffects::Organic)
    );
    assert_eq!((&*x.key, &*x.name, &*y.name), ("x", "x", "Y"));
    assert_eq!((x.previous_key.as_deref(), y.previous_key.as_deref()), (None, Some("z")));
    assert_eq!(
        (x.fraud.ctit_min_ms, x.fraud.block_ips.len(), x.fraud.block_devices.len()),
        (10_000, 2, 0)
    );
    // The raw Android id counts twice, for its two MD5 forms.
    assert_eq!(
        (y.fraud.ctit_min_ms, y.fraud.block_ips.len(), y.fraud.block_devices.len()),
        (10_000, 0, 6)
    );
    assert_eq!((y.fraud.clicks_per_device_max, y.fraud.block_sites.len()), (50, 1));
    assert_eq!(y.fraud.allow_channels, ["c".into()]);
}

#[test]
fn without_a_number_of_workers_one_processor_is_left_to_decode_events() {
    let workers = |text: &str| parse(text).unwrap().workers;
    assert_eq!(workers("[attribution]\nworkers = 64"), 64);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(workers(""), processors.saturating_sub(1).clamp(1, 64));
}

#[test]
fn without_a_file_the_defaults_apply() {
    assert!(!Path::new(DEFAULT_FILE).exists());
    let config = load(&Sources::default()).unwrap();
    assert_eq!(config.kafka.brokers, "127.0.0.1:9092");
    assert_eq!(config.policy.apps().count(), 0);
    let ingest = Ingest {
        event_bytes_max: 65_536,
        batch_records_max: 5_000,
        batch_bytes_max: 8_388_608,
        batch_age_max: Duration::from_millis(200),
        bad_records_max: 100,
    };
    assert_eq!(config.ingest, ingest);
    assert_eq!(config.shutdown_deadline, Duration::from_secs(30));
    assert_eq!(config.export_listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:8081");
}

/// The example with all optional settings enabled.
fn whole_example() -> String {
    let is_setting =
        |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let lines = EXAMPLE.lines().map(|line| if is_setting(line) { &line[1..] } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_shows_every_key() {
    let whole = whole_example();
    let table = tree::parse_file("example.toml", whole.as_bytes()).unwrap();
    let mut shown = Vec::new();
    collect_keys("", &table, &mut shown);
    let (config, diagnostics) = read(table, "example.toml", None);
    config.unwrap();
    for (table, keys) in diagnostics.known {
        for key in keys {
            let key = if table.is_empty() { key.into() } else { format!("{table}.{key}") };
            assert!(shown.contains(&key), "{key}");
        }
    }
}

fn collect_keys(prefix: &str, table: &Table, keys: &mut Vec<String>) {
    use tree::Value;
    for (key, node) in table {
        let key = format!("{prefix}{key}");
        keys.push(key.clone());
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for item in items {
            if let Value::Table(table) = &item.value {
                collect_keys(&format!("{key}."), table, keys);
            }
        }
    }
}

#[test]
fn the_example_has_the_default_values() {
    let defaults = parse("").unwrap();
    for (text, previous_key) in [(EXAMPLE, None), (&whole_example(), Some("app-w".into()))] {
        let mut example = parse(text).unwrap();
        for overrides in std::mem::take(&mut example.store.apps).values() {
            assert_eq!(
                overrides.retention_ms.unwrap_or(defaults.store.retention_ms),
                defaults.store.retention_ms
            );
            assert_eq!(overrides.fanout.unwrap_or(1), 1);
        }
        assert_eq!((&example.ingest, &example.store), (&defaults.ingest, &defaults.store));
        assert_eq!(example.registry, defaults.registry);
        assert_eq!(example.kafka.brokers, defaults.kafka.brokers);
        assert_eq!(example.kafka.group, defaults.kafka.group);
        assert_eq!(example.kafka.topics, defaults.kafka.topics);
        assert_eq!(example.export_listen, defaults.export_listen);
        assert_eq!(example.downloads_per_token_max, defaults.downloads_per_token_max);
        let mut clients = example.export_clients.clone();
        assert!(clients.allowed_hosts.iter().all(|host| &**host == "adtrail.internal"));
        clients.allowed_hosts = Box::default();
        assert_eq!(clients, defaults.export_clients);
        assert_eq!(example.admin_listen, defaults.admin_listen);
        assert_eq!(defaults.collect, None);
        if let Some(collect) = example.collect.clone() {
            let listen = collect.listen;
            let shown = Collect { dialects: None, public_url: None, spool: None, ..collect };
            assert_eq!(shown, Collect::new(listen));
        }
        for endpoint in &example.callbacks.endpoints {
            assert_eq!(endpoint.conditions.share_percent, None);
            assert_eq!((endpoint.settle_ms, endpoint.max_age_ms), (60_000, DAY_MS));
            assert_eq!((endpoint.late_credit, endpoint.in_flight_max), (LateCredit::Withhold, 16));
        }
        let shown = Callbacks { presets: None, endpoints: Vec::new(), ..example.callbacks.clone() };
        assert_eq!(shown, defaults.callbacks);
        assert_eq!(example.shutdown_deadline, defaults.shutdown_deadline);
        assert_eq!(example.channels, ["toutiao".into()]);
        let default_windows =
            |like: Windows| Windows { origins: like.origins, ..Windows::default() };
        let windows = default_windows(app(&example, 1).windows);
        let name = "App X".into();
        let expected = AppPolicy { name, previous_key, windows, ..AppPolicy::new(Pid(1), "app-x") };
        assert_eq!(format!("{:?}", app(&example, 1)), format!("{expected:?}"));
        assert_eq!(format!("{:?}", app(&example, 1).fraud), format!("{:?}", Fraud::default()));
        let campaign = example.policy.campaign(Pid(1), SpreadId(7)).unwrap();
        assert_eq!((&*campaign.channel, &*campaign.name), ("toutiao", "Spring"));
        assert_eq!(campaign.windows, default_windows(campaign.windows));
    }
}

#[test]
fn the_policy_version_depends_on_meaning_not_notation() {
    let version = |text: &str| parse(&format!("{CATALOGUE}{text}")).unwrap().policy.version();
    let plain = version("");
    assert_eq!(version("[attribution]\nclick_window = \"168h\"\n"), plain);
    assert_eq!(version("[kafka]\ngroup = \"another\"\n"), plain);
    assert_ne!(version("[attribution]\nclick_window = \"167h\"\n"), plain);
    assert_ne!(version("[fraud]\nctit_min = \"1s\"\n"), plain);
    assert_ne!(version("[attribution]\nreinstall_effects = \"organic\"\n"), plain);
}

#[test]
fn the_compose_settings_are_valid() {
    let config = parse(COMPOSE).unwrap();
    assert_eq!(config.kafka.brokers, "127.0.0.1:9092");
    assert_eq!(config.store.path, Path::new("/var/lib/adtrail/store"));
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:8081");
    assert_eq!((config.policy.apps().count(), config.policy.campaigns().count()), (2, 3));
}

#[test]
fn retention_of_an_app_overrides_the_store_default() {
    let text = "[store]\nretention = \"30d\"\nfanout_above = 9\n\
                [[apps]]\npid = 1\nkey = \"a\"\n[apps.store]\nretention = \"off\"\nfanout = 8\n\
                [[apps]]\npid = 2\nkey = \"b\"\n";
    let store = parse(text).unwrap().store;
    assert_eq!(store.retention_of(Pid(1)), None);
    assert_eq!(store.retention_of(Pid(2)), Some(30 * DAY_MS));
    assert_eq!(store.retention_of(Pid(3)), Some(30 * DAY_MS), "an app that is not configured");
    assert_eq!(store.apps[&Pid(1)].fanout, Some(8));
    assert_eq!((store.apps[&Pid(2)].fanout, store.fanout_above), (None, Some(9)));
    assert_eq!(parse("[store]\nfanout_above = 0").unwrap().store.fanout_above, None);
}
