//! Tests of the collector's settings, with every error.

use std::path::Path;
use std::time::Duration;

use super::mistakes::check_wrong;
use super::{CATALOGUE, Collect, parse, whole_example};

#[test]
fn without_an_address_there_is_no_collector() {
    assert_eq!(parse("").unwrap().collect, None);
    assert_eq!(parse("[collect]\nbody_bytes_max = 1024\n").unwrap().collect, None);
    let collect = parse(&whole_example()).unwrap().collect.unwrap();
    assert_eq!(collect.listen.to_string(), "127.0.0.1:8082");
}

#[test]
fn all_settings_of_the_collector_are_read() {
    let text = "[collect]\nlisten = \"0.0.0.0:80\"\nconnections_per_client_max = 1024\nbody_bytes_max = 1024\n\
                acknowledgement_timeout = \"60s\"\npublic_url = \"https://click.example.com/x/\"\ndialects = \"d\"\n";
    let expected = Collect {
        listen: "0.0.0.0:80".parse().unwrap(),
        connections_per_client_max: 1_024,
        body_bytes_max: 1_024,
        acknowledgement_timeout: Duration::from_secs(60),
        public_url: Some("https://click.example.com/x".into()),
        dialects: Some(Path::new("d").to_owned()),
    };
    assert_eq!(parse(text).unwrap().collect, Some(expected));
}

#[test]
fn a_channel_may_name_its_dialect() {
    let config = parse(&format!("{CATALOGUE}dialect = \"oceanengine\"\n")).unwrap();
    assert_eq!(config.dialects.get("toutiao").map(|name| &**name), Some("oceanengine"));
    assert!(parse(CATALOGUE).unwrap().dialects.is_empty());
}

#[test]
fn write_tokens_are_separate_from_tokens() {
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let token = format!("[[write_tokens]]\nid = \"a\"\nsha256 = \"{hex}\"\napps = [\"app-x\"]\n");
    let config = parse(&format!("{CATALOGUE}{token}")).unwrap();
    assert_eq!((config.tokens.len(), config.write_tokens.len()), (0, 1));
    assert_eq!(&*config.write_tokens[0].id, "a");
}

#[test]
#[rustfmt::skip]
fn invalid_settings_of_the_collector_are_rejected() {
    let check = |line: &str, expected: &str| check_wrong(&format!("[collect]\nlisten = \"127.0.0.1:8082\"\n{line}"), expected);
    check("connections_per_client_max = 0", "3: collect.connections_per_client_max: expected an integer from 1 to 1024: 0");
    check("body_bytes_max = 1023", "3: collect.body_bytes_max: expected an integer from 1024 to 16777216: 1023");
    check("acknowledgement_timeout = \"99ms\"", r#"3: collect.acknowledgement_timeout: expected a duration from "100ms" to "60s": "99ms""#);
    check("acknowledgement_timeout = \"61s\"", r#"3: collect.acknowledgement_timeout: expected a duration from "100ms" to "60s": "61s""#);
    let url = r#"expected an http or https URL without query, such as "https://click.example.com""#;
    for wrong in ["ftp://a", "https://a/?b", "https://a/#b", "https://u:p@a", "a.example", ""] {
        check(&format!("public_url = \"{wrong}\""), &format!("3: collect.public_url: {url}: \"{wrong}\""));
    }
    check("dialects = \"\"", r#"3: collect.dialects: expected a path: """#);
    check("[kafka.formats]\nclicks = \"avro:a.avsc\"", r#"2: collect.listen: requires kafka.formats.clicks to be "auto" or "json", because the collector produces JSON"#);
    check_wrong("[collect]\nlisten = \"127.0.0.1:8080\"", r#"2: collect.listen: expected another address than export.listen: "127.0.0.1:8080""#);
    check_wrong("[collect]\nlisten = \"127.0.0.1:8081\"", r#"2: collect.listen: expected another address than admin.listen: "127.0.0.1:8081""#);
    check_wrong("[collect]\nlisten = 8082", r#"2: collect.listen: expected an IP address and a port, such as "127.0.0.1:8080": 8082"#);
    check_wrong("[[channels]]\nid = \"c\"\ndialect = \"Ocean\"", r#"3: channels[0].dialect: expected the name of a dialect, 1 to 40 characters of a-z, 0-9 and '_': "Ocean""#);
    check_wrong("[[write_tokens]]\nid = \"a\"\nsha256 = \"x\"\napps = [\"*\"]", "3: write_tokens[0].sha256: expected the SHA-256 of the whole token, 64 hexadecimal digits, as `adtrail token new` prints it: (not shown)");
}
