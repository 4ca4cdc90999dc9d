//! Tests of the token settings, with every error.

use attribution::facts::event::Pid;

use super::mistakes::check_wrong;
use super::{CATALOGUE, Config, parse, whole_example};
use crate::Token;
use crate::TokenApps;
use crate::TokenDigest;

const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Appends tokens to the catalogue; they begin on line 7.
fn with_tokens(tokens: &str) -> String {
    format!("{CATALOGUE}{}", tokens.replace("HEX", HEX))
}

#[track_caller]
fn check(tokens: &str, expected: &str) {
    check_wrong(&with_tokens(tokens), expected);
}

fn good(tokens: &str) -> Config {
    parse(&with_tokens(tokens)).unwrap()
}

#[test]
fn a_token_grants_its_apps() {
    let config = good(
        "[[tokens]]\nid = \"a_1\"\nsha256 = \"HEX\"\napps = [\"app-x\"]\nexpires = \"2999-12-31\"\n\
         [[tokens]]\nid = \"all\"\nsha256 = \"HEX\"\napps = [\"*\"]\n",
    );
    let digest = TokenDigest::of("abc");
    let single = Token {
        id: "a_1".into(),
        digest: digest.clone(),
        apps: TokenApps::Listed([Pid(1)].into()),
        expires: Some("3000-01-01T00:00:00Z".parse().unwrap()),
    };
    let all = Token { id: "all".into(), digest, apps: TokenApps::All, expires: None };
    assert_eq!(config.tokens, [single, all]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let grants = |token: usize, pid| config.tokens[token].apps.has(Pid(pid));
    assert_eq!([grants(0, 1), grants(0, 2), grants(1, 1), grants(1, 2)], [true, false, true, true]);
    assert!(!format!("{config:?}").contains(&HEX[..8]));
}

#[test]
fn without_tokens_the_listener_must_be_on_loopback() {
    let expected = "2: export.listen: expected a loopback address such as \"127.0.0.1:8080\", because \
                    without [[tokens]] every client can read the rows of all apps; create a token with \
                    `adtrail token new --app KEY`: ";
    for listen in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80"] {
        let shown = format!("{expected}\"{listen}\"");
        check_wrong(&format!("[export]\nlisten = \"{listen}\""), &shown);
    }
    for listen in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8080"] {
        assert!(parse(&format!("[export]\nlisten = \"{listen}\"")).is_ok(), "{listen}");
    }
    let token = "[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = [\"*\"]\n";
    let config = good(&format!("{token}[export]\nlisten = \"0.0.0.0:80\""));
    assert_eq!(config.export_listen.to_string(), "0.0.0.0:80");
    // An invalid token counts as configured, so only its own error is reported.
    check(
        "[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = [\"*\"]\nexpires = \"x\"\nid2 = 1\n[export]\nlisten = \"0.0.0.0:80\"",
        "11: tokens[0].expires: expected an RFC 3339 instant such as \"2027-01-31T18:00:00+08:00\", or a \
         date such as \"2027-01-31\", at whose end in UTC the token expires: \"x\"\n\
         12: tokens[0].id2: unknown key, the nearest known one is: id",
    );
    check(
        "[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\n[export]\nlisten = \"0.0.0.0:80\"",
        "7: tokens[0].apps: missing, expected keys of [[apps]], or [\"*\"] for all",
    );
}

#[test]
#[rustfmt::skip]
fn invalid_tokens_are_rejected() {
    let of_id = |id: &str| format!("[[tokens]]\nid = {id}\nsha256 = \"HEX\"\napps = [\"*\"]");
    for id in ["\"\"", "\"A\"", "\"a-b\"", "\"_a\"", "\"a_\"", "\"a b\""] {
        check(&of_id(id), &format!("8: tokens[0].id: expected an id of 1 to 40 characters of a-z, 0-9 and '_', without '_' at the ends: {id}"));
    }
    check(&of_id("5"), "8: tokens[0].id: expected a quoted string: 5");
    let of_hash = |hash: &str| format!("[[tokens]]\nid = \"a\"\nsha256 = {hash}\napps = [\"*\"]");
    let hash_wrong = "9: tokens[0].sha256: expected the SHA-256 of the whole token, 64 hexadecimal digits, as `adtrail token new` prints it: (not shown)";
    for hash in ["\"\"", "\"xyz\"", "\"adt_a_0123456789abcdefABCDEFGHIJKLMNOP\""] {
        check(&of_hash(hash), hash_wrong);
    }
    let of_apps = |apps: &str| format!("[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = {apps}");
    check(&of_apps("[]"), "10: tokens[0].apps: expected keys of [[apps]], or \"*\" alone for all: a list of 0");
    check(&of_apps("[\"*\", \"app-x\"]"), "10: tokens[0].apps: expected keys of [[apps]], or \"*\" alone for all: a list of 2");
    check(&of_apps("[\"app-y\"]"), "10: tokens[0].apps[0]: expected the key of one of the [[apps]], the nearest is \"app-x\": \"app-y\"");
    check(&of_apps("\"app-x\""), "10: tokens[0].apps: expected a list of strings, such as [\"a\", \"b\"]: \"app-x\"");
    check_wrong(&of_apps("[\"x\"]").replace("HEX", HEX), "4: tokens[0].apps[0]: expected the key of one of the [[apps]], but none is defined: \"x\"");
    check("[[tokens]]\n", "7: tokens[0].id: missing, expected the token's name in logs\n7: tokens[0].sha256: missing, expected the SHA-256 of the token, as `adtrail token new` prints it\n7: tokens[0].apps: missing, expected keys of [[apps]], or [\"*\"] for all");
    check("[tokens]\nid = \"a\"", "7: tokens: expected tables [[tokens]], which are allowed only in the file: a table");
    check("[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = [\"*\"]\n[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = [\"*\"]", "12: tokens[1].id: expected a unique value, 8 has the same: \"a\"");
    check("[export]\ndownloads_per_token_max = 0", "8: export.downloads_per_token_max: expected an integer from 1 to 64: 0");
    check("[export]\ndownloads_per_token_max = 65", "8: export.downloads_per_token_max: expected an integer from 1 to 64: 65");
    check("[export]\nconnections_per_client_max = 0", "8: export.connections_per_client_max: expected an integer from 1 to 512: 0");
    check("[export]\nconnections_per_client_max = 513", "8: export.connections_per_client_max: expected an integer from 1 to 512: 513");
    check("[export]\nallowed_hosts = [\"a\", \"a:80\"]", "8: export.allowed_hosts[1]: expected a host name or an IP address without scheme, port or path, such as \"adtrail.example.com\": \"a:80\"");
    // A reference to an invalid app is not reported as unknown as well.
    check_wrong(&format!("[[apps]]\nkey = \"x\"\n{}", of_apps("[\"x\"]").replace("HEX", HEX)), "1: apps[0].pid: missing, expected the app's number");
}

/// Users may paste a token into a wrong setting, and logs must not show it.
#[test]
fn no_error_message_shows_a_token() {
    const TOKEN: &str = "adt_a_0123456789abcdefABCDEFGHIJKLMNOP";
    for line in [
        format!("[[tokens]]\nid = \"{TOKEN}\""),
        format!("[[tokens]]\nsha256 = \"{TOKEN}\""),
        format!("[[tokens]]\napps = [\"{TOKEN}\"]"),
        format!("[[tokens]]\napps = \"{TOKEN}\""),
        format!("[[tokens]]\nexpires = \"{TOKEN}\""),
        format!("[export]\nlisten = \"{TOKEN}\""),
    ] {
        let message = parse(&line).unwrap_err().to_string();
        assert!(!message.contains("0123456789") && message.contains("(not shown)"), "{message}");
    }
}

#[test]
fn an_expiry_in_the_past_is_a_warning() {
    let config =
        good("[[tokens]]\nid = \"a\"\nsha256 = \"HEX\"\napps = [\"*\"]\nexpires = \"2020-02-29\"");
    let expected = "adtrail.toml:11: tokens[0].expires: in the past: this token is rejected: \
                    2020-03-01T00:00:00Z";
    assert_eq!(config.warnings, [expected.into()]);
    assert_eq!(config.tokens.len(), 1);
}

#[test]
fn the_example_has_a_token() {
    let config = parse(&whole_example()).unwrap();
    assert_eq!((config.tokens.len(), &*config.tokens[0].id), (1, "partner"));
    assert_eq!(config.tokens[0].apps, TokenApps::Listed([Pid(1)].into()));
}
