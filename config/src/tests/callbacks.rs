//! Tests of the settings of callbacks, with every error.

use std::num::NonZeroU32;

use attribution::outbox::interest::LateCredit;
use attribution::outbox::record::CallbackKind;
use attribution::rules::policy::HOUR_MS;

use super::mistakes::check_wrong;
use super::{CATALOGUE, parse};
use crate::{CallbackConditions, CallbackEndpoint, Location};

/// The endpoint begins on line 7.
fn with_endpoint(text: &str) -> String {
    format!("{CATALOGUE}[[callbacks.endpoint]]\nname = \"a\"\npreset = \"p\"\n{text}\n")
}

fn endpoint(text: &str) -> CallbackEndpoint {
    parse(&with_endpoint(text)).unwrap().callbacks.endpoints.remove(0)
}

/// Expects an error in line 10.
#[track_caller]
fn check_wrong_endpoint(text: &str, expected: &str) {
    check_wrong(&with_endpoint(text), &format!("10: callbacks.endpoint[0].{expected}"));
}

#[test]
fn without_entries_there_are_no_endpoints() {
    assert_eq!(parse("").unwrap().callbacks, crate::Callbacks::default());
}

#[test]
fn an_endpoint_has_defaults() {
    let endpoint = endpoint("");
    assert_eq!((&*endpoint.name, &*endpoint.preset), ("a", "p"));
    assert_eq!(endpoint.location, Location::File { path: "adtrail.toml".into(), line: 7 });
    assert_eq!((endpoint.settle_ms, endpoint.max_age_ms), (60_000, 24 * HOUR_MS));
    assert_eq!(endpoint.late_credit, LateCredit::Withhold);
    assert_eq!(endpoint.conditions, CallbackConditions::default());
    assert_eq!((endpoint.requests_per_second_max, endpoint.in_flight_max), (None, 16));
    assert!(endpoint.apps.is_empty() && endpoint.channels.is_empty() && endpoint.kinds.is_none());
}

#[test]
fn all_settings_of_an_endpoint_are_read() {
    let endpoint = endpoint(
        "url = \"https://a.example/x?y={time|s}\"\napps = [\"app-x\"]\nchannels = [\"toutiao\"]\n\
         kinds = [\"activation.changed\"]\nsettle = \"0s\"\nmax_age = \"1h\"\nlate_credit = \"send\"\n\
         revenue_min = \"6\"\nonce_per = \"24h\"\nshare_percent = 70\nrequests_per_second_max = 9\n\
         in_flight_max = 2\nevents.purchase = \"pay\"\nevents.login = \"\"\nvalues.account = 12\n\
         credentials.secret = \"hunter2\"\ncredentials.previous_secret = \"hunter1\"\n",
    );
    assert_eq!(endpoint.url.as_deref(), Some("https://a.example/x?y={time|s}"));
    assert_eq!((&*endpoint.apps[0], &*endpoint.channels[0]), ("app-x", "toutiao"));
    assert_eq!(endpoint.kinds.as_deref(), Some(&[CallbackKind::ActivationChanged][..]));
    assert_eq!((endpoint.settle_ms, endpoint.max_age_ms), (0, HOUR_MS));
    assert_eq!(endpoint.late_credit, LateCredit::Send);
    let conditions = CallbackConditions {
        revenue_min: Some("6".into()),
        first_only: false,
        once_per_ms: Some(24 * HOUR_MS),
        share_percent: Some(70),
    };
    assert_eq!(endpoint.conditions, conditions);
    let limits = (endpoint.requests_per_second_max, endpoint.in_flight_max);
    assert_eq!(limits, (NonZeroU32::new(9), 2));
    assert_eq!((&*endpoint.events["purchase"], &*endpoint.events["login"]), ("pay", ""));
    assert_eq!(&*endpoint.values["account"], "12");
    assert_eq!(endpoint.credentials.secret.as_ref().unwrap().expose(), "hunter2");
    assert!(!format!("{endpoint:?}").contains("hunter"), "a secret is not shown");
}

#[test]
fn the_table_has_the_defaults_of_endpoints() {
    let table = "[callbacks]\nsettle = \"5s\"\nmax_age = \"2h\"\nlate_credit = \"send\"\n";
    let endpoint = |more: &str| {
        let config = parse(&format!("{table}{}", with_endpoint(more))).unwrap();
        let endpoint = &config.callbacks.endpoints[0];
        (endpoint.settle_ms, endpoint.max_age_ms, endpoint.late_credit)
    };
    assert_eq!(endpoint(""), (5_000, 2 * HOUR_MS, LateCredit::Send));
    let own = "settle = \"1s\"\nmax_age = \"1h\"\nlate_credit = \"withhold\"";
    assert_eq!(endpoint(own), (1_000, HOUR_MS, LateCredit::Withhold));
}

#[test]
#[rustfmt::skip]
fn mistakes_are_named() {
    check_wrong("[[callbacks.endpoint]]\n", "1: callbacks.endpoint[0].name: missing, expected the endpoint's name, by which callbacks are listed\n1: callbacks.endpoint[0].preset: missing, expected the name of a preset, such as \"webhook\"");
    check_wrong(&with_endpoint("[[callbacks.endpoint]]\nname = \"a\"\npreset = \"p\"\n"), "11: callbacks.endpoint[1].name: expected a unique value, 8 has the same: \"a\"");
    check_wrong_endpoint("url = \"ftp://a\"", "url: expected an https or http URL of at most 2048 characters, without fragment: (not shown)");
    check_wrong_endpoint("apps = [\"app-y\"]", "apps[0]: expected the key of one of the [[apps]], the nearest is \"app-x\": \"app-y\"");
    check_wrong_endpoint("channels = [\"x\"]", "channels[0]: expected the id of one of the [[channels]], the nearest is \"toutiao\": \"x\"");
    check_wrong_endpoint("kinds = [\"x\"]", "kinds[0]: expected one of \"activation\", \"effect\", \"activation.attributed\", \"activation.changed\", \"activation.rejected\", \"effect.attributed\": \"x\"");
    for key in ["apps", "channels", "kinds"] {
        check_wrong_endpoint(&format!("{key} = []"), &format!("{key}: expected at least one entry, or no such key for the default: []"));
    }
    check_wrong_endpoint("settle = \"2d\"", "settle: expected at most \"1d\": \"2d\"");
    check_wrong_endpoint("max_age = \"1s\"", "max_age: expected a duration from \"1m\" to \"5d\": \"1s\"");
    check_wrong_endpoint("late_credit = \"x\"", "late_credit: expected \"withhold\" or \"send\": \"x\"");
    check_wrong_endpoint("revenue_min = \"-1\"", "revenue_min: expected a decimal without a sign, such as \"6.00\": \"-1\"");
    check_wrong_endpoint("once_per = \"0s\"", "once_per: expected a duration of at least \"1ms\": \"0s\"");
    check_wrong_endpoint("share_percent = 0", "share_percent: expected an integer from 1 to 100: 0");
    check_wrong_endpoint("once_per = \"1h\"\nfirst_only = true", "once_per: has no effect with first_only: set one of them");
    check_wrong_endpoint("values.a = true", "values.a: expected a string or an integer: true");
    check_wrong_endpoint("credentials.secret = 7", "credentials.secret: expected a non-empty string, or a file as in { file = \"/run/secrets/name\" }: (not shown)");
    check_wrong_endpoint("credentials.previous_secret = \"x\"", "credentials.previous_secret: requires callbacks.endpoint[0].credentials.secret");
}

#[test]
fn loopback_hosts_are_for_tests() {
    let allowed = |brokers: &str| {
        parse(&format!("kafka.brokers = \"{brokers}\"\ncallbacks.allow_loopback = [\"Localhost\"]"))
    };
    for brokers in ["localhost:9092", "127.0.0.1:1,127.0.0.2", "SSL://[::1]:9092"] {
        assert_eq!(*allowed(brokers).unwrap().callbacks.allow_loopback, ["localhost".into()]);
    }
    for brokers in ["kafka:9092", "127.0.0.1:1,kafka:9092"] {
        let error = allowed(brokers).unwrap_err().to_string();
        let expected = "callbacks.allow_loopback: is for tests and the demo: requires kafka.brokers \
                        on loopback addresses";
        assert!(error.ends_with(expected), "{error}");
    }
}
