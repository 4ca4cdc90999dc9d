//! Tests of the registry settings, with every error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mistakes::{check_variable, check_wrong};
use super::pair;
use crate::{Identity, Login, Registry, Sources, Tls, load, parse};

const URLS: &str = "[registry]\nurls = [\"http://a\"]\n";

/// Parses registry settings; `text` begins on line 3.
fn registry(text: &str) -> Registry {
    parse(&format!("{URLS}{text}")).unwrap().registry.unwrap()
}

#[track_caller]
fn check_rejected(text: &str, expected: &str) {
    check_wrong(&format!("{URLS}{text}"), expected);
}

#[track_caller]
fn check_cache(store: &str, expected: &str) {
    let text = format!("{URLS}[store]\npath = {store:?}\n");
    assert_eq!(parse(&text).unwrap().registry.unwrap().cache, Path::new(expected), "{store}");
}

#[test]
fn without_urls_no_registry_is_used() {
    assert_eq!(parse("").unwrap().registry, None);
    assert_eq!(parse("[registry]\nurls = []\nuser = \"u\"\ntoken = \"t\"").unwrap().registry, None);
}

#[test]
fn everything_but_the_urls_has_a_default() {
    let expected = Registry {
        urls: vec!["http://a/".parse().unwrap()],
        login: None,
        tls: Tls::default(),
        cache: "adtrail-data-schemas".into(),
        timeout: Duration::from_secs(10),
        unknown_schema_retry: Duration::from_secs(60),
    };
    assert_eq!(registry(""), expected);
}

#[test]
fn every_key_can_be_set() {
    let config = parse(
        "[registry]\nurls = [\"https://a:1/apis/ccompat/v7\", \"http://[::1]:8081/\"]\n\
         user = \"u\"\npassword = \"p\"\nca = \"ca.pem\"\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
         cache = \"/c\"\ntimeout = \"1ms\"\nunknown_schema_retry = \"1s\"",
    );
    let expected = Registry {
        urls: vec![
            "https://a:1/apis/ccompat/v7".parse().unwrap(),
            "http://[::1]:8081".parse().unwrap(),
        ],
        login: Some(Login::Basic {
            user: "u".into(),
            password: crate::Secret::parse("p").unwrap(),
        }),
        tls: Tls {
            ca: Some("ca.pem".into()),
            identity: Some(Identity { certificate: "c.pem".into(), key: "k.pem".into() }),
        },
        cache: "/c".into(),
        timeout: Duration::from_millis(1),
        unknown_schema_retry: Duration::from_secs(1),
    };
    assert_eq!(config.unwrap().registry.unwrap(), expected);
    let bearer = Login::Bearer(crate::Secret::parse("t").unwrap());
    assert_eq!(registry("token = \"t\"").login, Some(bearer));
}

#[test]
fn schemas_are_cached_next_to_the_store() {
    check_cache("adtrail-data", "adtrail-data-schemas");
    check_cache("/var/lib/adtrail/", "/var/lib/adtrail-schemas");
    check_cache("a/../b", "a/../b-schemas");
    check_cache(".", "./schemas");
    check_cache("/", "/schemas");
    let cache: PathBuf = registry("cache = \"c\"").cache;
    assert_eq!(cache, Path::new("c"));
}

#[test]
fn secrets_can_come_from_files_and_variables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "hunter2\n").unwrap();
    let token = |registry: Registry| match registry.login {
        Some(Login::Bearer(token)) => token.expose().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(token(registry(&format!("token = {{ file = {path:?} }}"))), "hunter2");
    assert_eq!(token(registry(&format!("token.file = {path:?}"))), "hunter2");
    let loaded = |name: &str, value: &str| {
        let mut environment = pair(name, value);
        environment.extend(pair("ADTRAIL__REGISTRY__URLS", "[\"http://a\"]"));
        let sources = Sources { environment, ..Sources::default() };
        load(&sources).unwrap().registry.unwrap()
    };
    let path = path.to_str().unwrap();
    assert_eq!(token(loaded("ADTRAIL__REGISTRY__TOKEN", "12#34")), "12#34");
    assert_eq!(token(loaded("ADTRAIL__REGISTRY__TOKEN__FILE", path)), "hunter2");
    let table = format!("{{ file = {path:?} }}");
    assert_eq!(token(loaded("ADTRAIL__REGISTRY__TOKEN", &table)), "hunter2");
}

#[test]
#[rustfmt::skip]
fn invalid_values_are_reported_with_what_is_allowed() {
    const URL: &str = r#"expected a URL such as "http://registry:8081", optionally with a path: (not shown)"#;
    for bad in ["registry:8081", "", "ftp://a", "http://", "/a", "http://a b"] {
        check_wrong(&format!("[registry]\nurls = [\"http://a\", {bad:?}]"), &format!("2: registry.urls[1]: {URL}"));
    }
    check_wrong("[registry]\nurls = [5]", &format!("2: registry.urls[0]: {URL}"));
    check_wrong("[registry]\nurls = \"http://a\"", r#"2: registry.urls: expected a list of strings, such as ["a", "b"]: (not shown)"#);
    const CREDENTIALS: &str = "the URL contains credentials, expected them as registry.user and registry.password: (not shown)";
    check_wrong("[registry]\nurls = [\"http://u:hunter2@a\"]", &format!("2: registry.urls[0]: {CREDENTIALS}"));
    check_wrong("[registry]\nurls = [\"http://u@a\"]", &format!("2: registry.urls[0]: {CREDENTIALS}"));
    check_variable("ADTRAIL__REGISTRY__URLS", "[\"http://:hunter2@a\"]", &format!("registry.urls[0]: {CREDENTIALS}"));
    check_wrong("[registry]\nurls = [\"http://a?token=hunter2\"]", "2: registry.urls[0]: expected a URL without query and fragment: (not shown)");
    check_rejected("tiemout = \"1s\"", "3: registry.tiemout: unknown key, the nearest known one is: timeout");
    check_rejected("timeout = \"0s\"", r#"3: registry.timeout: expected at least "1ms": "0s""#);
    check_rejected("timeout = 5", r#"3: registry.timeout: no unit, expected one of ms, s, m, h, d, w as in "7d": 5"#);
    check_rejected("unknown_schema_retry = \"999ms\"", r#"3: registry.unknown_schema_retry: expected at least "1s": "999ms""#);
    check_rejected("cache = \"\"", r#"3: registry.cache: expected a path: """#);
    check_rejected("ca = 5", "3: registry.ca: expected a quoted string: 5");
}

#[test]
#[rustfmt::skip]
fn invalid_secrets_are_reported_but_not_shown() {
    const SECRET: &str = r#"expected a non-empty string, or a file as in { file = "/run/secrets/name" }: (not shown)"#;
    for bad in ["\"\"", "123456", "true", "[\"hunter2\"]"] {
        check_rejected(&format!("token = {bad}"), &format!("3: registry.token: {SECRET}"));
    }
    check_rejected("token = { file = \"/absent/secret\" }", r#"3: registry.token.file: the file cannot be read, No such file or directory (os error 2): "/absent/secret""#);
    check_rejected("token = { fil = \"/absent\" }", "3: registry.token.file: missing, expected the path of a file with the secret\n3: registry.token.fil: unknown key, the nearest known one is: file");
    check_variable("ADTRAIL__REGISTRY__PASSWORD__FILE", "", r#"registry.password.file: the file cannot be read, No such file or directory (os error 2): """#);
    let shown = format!("{:?}", registry("user = \"u\"\npassword = \"hunter2\""));
    assert!(shown.contains("password: (not shown)") && !shown.contains("hunter2"), "{shown}");
}

#[test]
#[rustfmt::skip]
fn contradictions_are_reported() {
    check_rejected("user = \"u\"", "3: registry.user: requires registry.password");
    check_rejected("password = \"p\"", "3: registry.password: requires registry.user");
    check_rejected("certificate = \"c\"", "3: registry.certificate: requires registry.key");
    check_rejected("key = \"k\"", "3: registry.key: requires registry.certificate");
    for bad in ["a b", "a\\n", "é"] {
        check_rejected(&format!("token = \"{bad}\""), "3: registry.token: expected printable ASCII characters without spaces");
    }
    check_rejected("user = \"u\"\npassword = \"p\"\ntoken = \"t\"", "5: registry.token: excludes registry.user: only one login is allowed");
    check_rejected("token = \"t\"\nuser = \"u\"\npassword = \"p\"", "4: registry.user: excludes registry.token: only one login is allowed");
}
