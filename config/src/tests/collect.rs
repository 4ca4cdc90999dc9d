//! Tests of the collector's settings, with every error.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use attribution::facts::event::SpreadId;
use attribution::rules::policy::IpRange;

use super::mistakes::check_wrong;
use super::{CATALOGUE, Collect, parse, whole_example};
use crate::{Link, LinkTarget, SignatureMode, SignatureScheme};

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
                requests_per_address_max = 1\nevents_per_app_max = 0\n\
                acknowledgement_timeout = \"60s\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
                public_url = \"https://click.example.com/x/\"\ndialects = \"d\"\n\
                spool = \"s\"\nspool_bytes_max = \"16MiB\"\n";
    let expected = Collect {
        listen: "0.0.0.0:80".parse().unwrap(),
        connections_per_client_max: 1_024,
        requests_per_address_max: NonZeroU32::new(1),
        events_per_app_max: None,
        body_bytes_max: 1_024,
        acknowledgement_timeout: Duration::from_secs(60),
        trusted_proxies: [IpRange { network: "10.0.0.0".parse().unwrap(), prefix_bits: 8 }].into(),
        public_url: Some("https://click.example.com/x".into()),
        dialects: Some(Path::new("d").to_owned()),
        spool: Some(Path::new("s").to_owned()),
        spool_bytes_max: 16 << 20,
    };
    assert_eq!(parse(text).unwrap().collect, Some(expected));
}

#[test]
fn a_channel_may_name_its_dialect() {
    let config = parse(&format!("{CATALOGUE}dialect = \"oceanengine\"\n")).unwrap();
    assert_eq!(config.dialects.get("toutiao").map(|name| &**name), Some("oceanengine"));
    // Any name of a file.
    let config = parse(&format!("{CATALOGUE}dialect = \"My-Net 2\"\n")).unwrap();
    assert_eq!(config.dialects.get("toutiao").map(|name| &**name), Some("My-Net 2"));
    assert!(parse(CATALOGUE).unwrap().dialects.is_empty());
}

const SIGNATURE: &str = "[channels.signature]\nscheme = \"baidu\"\nmode = \"enforce\"\n";

#[test]
fn a_channel_may_have_a_signature() {
    let keys = "keys = [{ secret = \"a\", expires = \"2099-12-31\" }, \
                { secret = \"b\", not_before = \"2099-12-31T12:00:00Z\" }]\n";
    let config = parse(&format!("{CATALOGUE}{SIGNATURE}{keys}")).unwrap();
    assert!(config.policy.is_signed_channel("toutiao"));
    let signature = &config.signatures["toutiao"];
    let found = (signature.scheme, signature.mode, signature.keys.len());
    assert_eq!(found, (SignatureScheme::Baidu, SignatureMode::Enforce, 2));
    let secrets: Vec<_> =
        signature.keys.iter().map(|key| key.secret.as_ref().unwrap().expose()).collect();
    assert_eq!(secrets, ["a", "b"]);
    let check = |time: &str, expected: [bool; 2]| {
        let valid = |index: usize| signature.keys[index].is_valid_at(time.parse().unwrap());
        assert_eq!([valid(0), valid(1)], expected, "{time}");
    };
    check("2026-03-10T12:00:00Z", [true, false]);
    check("2099-12-31T12:00:00Z", [true, true]);
    check("2100-01-01T00:00:00Z", [false, true]);
    let report = format!("{CATALOGUE}{SIGNATURE}{keys}").replace("enforce", "report");
    let config = parse(&report).unwrap();
    assert!(config.signatures["toutiao"].is_checked());
    assert!(!config.policy.is_signed_channel("toutiao"));
    assert!(parse(CATALOGUE).unwrap().signatures.is_empty());
}

/// Attribution needs only the mode, and runs where the keys are not.
#[test]
fn a_key_whose_file_cannot_be_read_is_an_error_of_the_collector() {
    let keys = "keys = [{ secret = { file = \"/no/such\" } }]\n";
    let config = parse(&format!("{CATALOGUE}{SIGNATURE}{keys}")).unwrap();
    let secret = config.signatures["toutiao"].keys[0].secret.clone();
    assert!(secret.unwrap_err().starts_with("the file cannot be read"));
    assert!(config.policy.is_signed_channel("toutiao"));
}

/// The table begins on line 7.
#[test]
#[rustfmt::skip]
fn invalid_signatures_are_rejected() {
    let check = |line: &str, expected: &str| check_wrong(&format!("{CATALOGUE}{SIGNATURE}{line}"), expected);
    check("", "7: channels[0].signature.keys: missing, expected one or two keys");
    check("keys = []", "10: channels[0].signature.keys: expected one or two keys, found 0");
    check("keys = [{ secret = \"a\" }, { secret = \"b\" }, { secret = \"c\" }]", "10: channels[0].signature.keys: expected one or two keys, found 3");
    check("keys = [\"hunter2\"]", "10: channels[0].signature.keys[0]: expected a table: (not shown)");
    check("keys = \"hunter2\"", "10: channels[0].signature.keys: expected tables [[keys]], which are allowed only in the file: (not shown)");
    check("keys = [{ secret = 7 }]", r#"10: channels[0].signature.keys[0].secret: expected a non-empty string, or a file as in { file = "/run/secrets/name" }: (not shown)"#);
    check("keys = [{ expires = \"2099-12-31\" }]", "10: channels[0].signature.keys[0].secret: missing, expected the key that signs");
    check("keys = [{ secret = \"a\", not_before = \"2099-12-31\" }]", r#"10: channels[0].signature.keys[0].not_before: expected an RFC 3339 instant such as "2027-01-31T18:00:00+08:00": "2099-12-31""#);
    check("keys = [{ secret = \"a\", expires = \"2099\" }]", r#"10: channels[0].signature.keys[0].expires: expected an RFC 3339 instant such as "2027-01-31T18:00:00+08:00", or a date such as "2027-01-31", at whose end in UTC the key expires: "2099""#);
    check("keys = [{ secret = \"a\", not_before = \"2099-12-31T00:00:00Z\", expires = \"2099-12-30\" }]", r#"10: channels[0].signature.keys[0].expires: expected a time after not_before: "2099-12-31T00:00:00Z""#);
    check_wrong(&format!("{CATALOGUE}[channels.signature]\nscheme = \"md5\"\nmode = \"on\"\nkeys = [{{ secret = \"a\" }}]"), "8: channels[0].signature.scheme: expected \"appsflyer_v1\", \"hmac_sha256\", \"baidu\" or \"xiaomi\": \"md5\"\n9: channels[0].signature.mode: expected \"off\", \"report\" or \"enforce\": \"on\"");
    check("keys = [{ secret = \"a\" }]\n[collect]\nlisten = \"127.0.0.1:8082\"", "12: collect.listen: requires collect.public_url, because [channels.signature] of a channel is of whole URLs");
}

/// The catalogue with a campaign, 11 lines, and a link that begins on line 12.
fn with_link(link: &str) -> String {
    format!(
        "{CATALOGUE}[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n\n[[links]]\n{link}"
    )
}

#[test]
fn a_link_leads_to_a_store_or_page_per_system() {
    let play = "https://play.google.com/store/apps/details?id=x";
    let text = format!(
        "id = \"a-1\"\nspreadid = 7\npurpose = \"retargeting\"\nandroid = \"{play}\"\nios = \"https://a.example\"\n\
         fallback = \"market://details?id=x\"\nclick_id_parameter = \"cid\"\n"
    );
    let target = |url: &str, is_google_play| LinkTarget { url: url.into(), is_google_play };
    let expected = Link {
        id: "a-1".into(),
        spreadid: SpreadId(7),
        app: "app-x".into(),
        channel: "toutiao".into(),
        is_retargeting: true,
        android: Some(target(play, true)),
        ios: Some(target("https://a.example/", false)),
        fallback: target("market://details?id=x", true),
        click_id_parameter: Some("cid".into()),
    };
    assert_eq!(parse(&with_link(&text)).unwrap().links, [expected]);
}

#[test]
#[rustfmt::skip]
fn invalid_links_are_rejected() {
    let check = |line: &str, expected: &str| check_wrong(&with_link(&format!("id = \"a\"\nspreadid = 7\nfallback = \"https://a\"\n{line}")), expected);
    let target = "expected an http, https or market URL without fragment, such as \"https://apps.apple.com/app/id1\"";
    for wrong in ["a", "javascript:alert(1)", "//a", "https://a/#b", "https://u:p@a", "ftp://a"] {
        check(&format!("ios = \"{wrong}\""), &format!("16: links[0].ios: {target}: \"{wrong}\""));
    }
    check("android = \"https://play.google.com/?id=x&referrer=y\"", "16: links[0].android: expected a URL without referrer: the collector adds it, with the click id: \"https://play.google.com/?id=x&referrer=y\"");
    check("purpose = \"x\"", "16: links[0].purpose: expected \"ua\" or \"retargeting\": \"x\"");
    check("click_id_parameter = \"a b\"", "16: links[0].click_id_parameter: expected a parameter of 1 to 40 characters of a-z, A-Z, 0-9, '_' and '-': \"a b\"");
    check("ios = \"https://b/?a=1&cid=x\"\nclick_id_parameter = \"cid\"", "16: links[0].ios: expected a URL without click_id_parameter: the collector adds it: \"https://b/?a=1&cid=x\"");
    check("[[links]]\nid = \"a\"\nspreadid = 7\nfallback = \"https://a\"", "17: links[1].id: expected a unique value, 13 has the same: \"a\"");
    check_wrong(&with_link("id = \"a/b\"\nspreadid = 8\nfallback = \"https://a\""), "13: links[0].id: expected an id of 1 to 64 characters of a-z, A-Z, 0-9, '_' and '-': \"a/b\"\n14: links[0].spreadid: expected the spreadid of one of the [[campaigns]]: 8");
    check_wrong(&with_link(""), "12: links[0].id: missing, expected the last part of the link's path\n12: links[0].spreadid: missing, expected the spreadid of one of the [[campaigns]]\n12: links[0].fallback: missing, expected the URL for systems without one of their own");
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
    check("requests_per_address_max = 1000001", "3: collect.requests_per_address_max: expected an integer from 0 to 1000000: 1000001");
    check("events_per_app_max = -1", "3: collect.events_per_app_max: expected an integer from 0 to 1000000: -1");
    check("body_bytes_max = 1023", "3: collect.body_bytes_max: expected an integer from 1024 to 16777216: 1023");
    check("acknowledgement_timeout = \"99ms\"", r#"3: collect.acknowledgement_timeout: expected a duration from "100ms" to "60s": "99ms""#);
    check("acknowledgement_timeout = \"61s\"", r#"3: collect.acknowledgement_timeout: expected a duration from "100ms" to "60s": "61s""#);
    let url = r#"expected an http or https URL without query, such as "https://click.example.com""#;
    for wrong in ["ftp://a", "https://a/?b", "https://a/#b", "https://u:p@a", "a.example", ""] {
        check(&format!("public_url = \"{wrong}\""), &format!("3: collect.public_url: {url}: \"{wrong}\""));
    }
    check("dialects = \"\"", r#"3: collect.dialects: expected a path: """#);
    check("spool = \"\"", r#"3: collect.spool: expected a path: """#);
    check("spool = \"s\"\nspool_bytes_max = \"65GiB\"", r#"4: collect.spool_bytes_max: expected a size from "16MiB" to "64GiB": "65GiB""#);
    check("spool = \"s\"\nspool_bytes_max = \"15MiB\"", r#"4: collect.spool_bytes_max: expected a size from "16MiB" to "64GiB": "15MiB""#);
    check("spool = \"adtrail-data\"", r#"3: collect.spool: expected another directory than store.path: "adtrail-data""#);
    check("spool_bytes_max = \"1GiB\"", "3: collect.spool_bytes_max: requires collect.spool");
    check("[kafka.formats]\nclicks = \"avro:a.avsc\"", r#"2: collect.listen: requires kafka.formats.clicks to be "auto" or "json", because the collector produces JSON"#);
    check_wrong("[collect]\nlisten = \"127.0.0.1:8080\"", r#"2: collect.listen: expected another address than export.listen: "127.0.0.1:8080""#);
    check_wrong("[collect]\nlisten = \"127.0.0.1:8081\"", r#"2: collect.listen: expected another address than admin.listen: "127.0.0.1:8081""#);
    check_wrong("[collect]\nlisten = 8082", r#"2: collect.listen: expected an IP address and a port, such as "127.0.0.1:8080": 8082"#);
    check_wrong("[[channels]]\nid = \"c\"\ndialect = \"\"", r#"3: channels[0].dialect: expected the name of a dialect: """#);
    check_wrong("[[write_tokens]]\nid = \"a\"\nsha256 = \"x\"\napps = [\"*\"]", "3: write_tokens[0].sha256: expected the SHA-256 of the whole token, 64 hexadecimal digits, as `adtrail token new` prints it: (not shown)");
}
