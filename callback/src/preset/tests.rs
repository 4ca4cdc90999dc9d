//! Tests of the built-in presets as data, and of mistakes in files.

use std::fs;
use std::path::Path;

use config::Callbacks;

use super::catalogue::Presets;
use super::raw;
use crate::template::Template;

const HEAD: &str = "documented = false\nsource = \"a test\"\n";

fn built_in() -> Presets {
    Presets::load(&Callbacks::default()).unwrap()
}

#[track_caller]
fn check_wrong(text: &str, expected: &str) {
    let problem = raw::parse("x", &format!("{HEAD}{text}")).unwrap_err();
    assert!(problem.starts_with(expected), "{problem}");
}

#[test]
fn every_dialect_but_the_generic_one_has_a_preset() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collect/dialects");
    let presets = built_in();
    let names: Vec<_> = presets.iter().map(|preset| preset.name.to_string()).collect();
    let mut dialects = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        dialects += 1;
        assert!(name == "generic" || names.contains(&name), "{name}");
    }
    assert!(dialects > 10);
}

#[test]
fn every_preset_has_a_source_and_calls_an_activation_something() {
    for preset in built_in().iter() {
        assert!(preset.source.len() > 10, "{}", preset.name);
        let names_activation = preset.events.contains_key("activation");
        assert!(names_activation || preset.sends_unmapped, "{}", preset.name);
    }
}

#[test]
fn no_token_is_sent_without_tls() {
    for preset in built_in().iter() {
        let start = preset.url.as_ref().map_or("", Template::literal_start);
        assert!(!preset.is_plain_http && !start.starts_with("http:"), "{}", preset.name);
    }
}

#[test]
fn the_documentation_lists_every_preset_with_its_mark() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/callbacks.md");
    let page = fs::read_to_string(path).unwrap();
    for preset in built_in().iter() {
        let mark = if preset.is_documented { "documented" } else { "unverified" };
        let row = format!("| `{}` | {mark} |", preset.name);
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn a_directory_adds_and_replaces_presets() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}url = \"https://a.example/\"\nevents.activation = \"i\"\n");
    for name in ["mine.toml", "weibo.toml", "notes.txt"] {
        fs::write(folder.path().join(name), &text).unwrap();
    }
    let settings = Callbacks { presets: Some(folder.path().to_owned()), ..Callbacks::default() };
    let presets = Presets::load(&settings).unwrap();
    assert_eq!(&*presets.find("mine").unwrap().source, "a test");
    assert_eq!(&*presets.find("weibo").unwrap().source, "a test");
    let error = presets.find("webhok").unwrap_err();
    let expected = "preset: no such preset, the nearest is \"webhook\": \"webhok\"";
    assert_eq!(error, expected);
    fs::write(folder.path().join("bad.toml"), "x").unwrap();
    assert!(Presets::load(&settings).is_err());
    let missing = Callbacks { presets: Some("/nowhere".into()), ..Callbacks::default() };
    assert!(Presets::load(&missing).is_err());
}

#[test]
fn mistakes_in_a_file_are_named() {
    check_wrong("urls = 1", "unknown field `urls`");
    check_wrong("", "url: missing, expected unless");
    check_wrong("url = \"{x}\"", "url: expected a field");
    check_wrong("callback_is_url = true", "hosts: expected with callback_is_url");
    let url = "url = \"https://a.example/\"\n";
    let check = |text: &str, expected: &str| check_wrong(&format!("{url}{text}"), expected);
    check("hosts = [\"a.example\"]", "hosts: expected with callback_is_url");
    check("callback_is_url = true\nhosts = [\"*\"]", "hosts: expected a host name");
    check("paths = [\"/a\"]", "paths: expected only with callback_is_url");
    let of_clicks = "callback_is_url = true\nhosts = [\"a.example\"]\n";
    check(&format!("{of_clicks}paths = [\"a\"]"), "paths: expected a path");
    for name in ["access_token", "secret"] {
        let header =
            format!("credentials = [{name:?}]\nheaders = [[\"x\", \"{{credentials.{name}}}\"]]");
        check(&format!("{of_clicks}{header}"), "paths: expected with");
    }
    check("method = \"PUT\"", "method: expected");
    check("kinds = [\"x\"]", "kinds: unknown name");
    check("kinds = []", "kinds: expected at least one");
    check("sign = \"rot13\"", "sign: unknown name");
    check("sign = \"baidu_md5\"", "credentials: expected \"secret\", by sign");
    check("credentials = [\"x\"]", "credentials: unknown name");
    check("replace = [[\"a\", \"b\"]]", "replace: expected only with");
    for name in ["a b", "", "Content-Length", "host"] {
        check(&format!("headers = [[{name:?}, \"x\"]]"), "headers: expected the name of another");
    }
    check("query = [[\"a\", \"{b}\"]]", "query: expected a field");
    check("required = [\"b\"]", "required: expected a field");
    check("headers = [[\"a\", \"{credentials.secret}\"]]", "credentials: expected \"secret\"");
    check("query = [[\"a\", \"{ids.oaid|aes128_ecb}\"]]", "credentials: expected \"key\"");
    check("[body]\na = 1.5", "body: expected strings");
    check("[body]\na = \"{b}\"", "body: expected a field");
    let deep = format!("body.{} = 1", ["a"; 9].join("."));
    check(&deep, "body: expected at most 8 levels");
    check("[success]\nvalues = []", "missing field `field`");
    check("[success]\nfield = \"code\"\nvalues = []", "success.values: expected the texts");
}
