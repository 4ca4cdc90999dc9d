//! Tests of catalogue files.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::{DAY_MS, HOUR_MS};
use tempfile::TempDir;

use super::{CATALOGUE, pair};
use crate::{Config, Sources, load, load_with_file};

/// Settings in `adtrail.toml` that include TOML and CSV files of `campaigns`, with these files.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let patterns = r#"catalogue = ["campaigns/*.toml", "campaigns/*.csv"]"#;
        Self::with(&format!("{CATALOGUE}[include]\n{patterns}\n"), files)
    }

    fn with(settings: &str, files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join("campaigns")).unwrap();
        folder.write("adtrail.toml", settings);
        files.iter().for_each(|(name, text)| folder.write(name, text));
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn load(&self) -> Result<Config, String> {
        let file = self.path().join("adtrail.toml");
        self.shown(load(&Sources { file: Some(&file), ..Sources::default() }))
    }

    fn load_draft(&self, name: &str, text: &str) -> Result<Config, String> {
        let file = self.path().join("adtrail.toml");
        let sources = Sources { file: Some(&file), ..Sources::default() };
        self.shown(load_with_file(&sources, &self.path().join(name), text))
    }

    /// Removes the folder from errors.
    fn shown(&self, loaded: Result<Config, crate::ConfigErrors>) -> Result<Config, String> {
        let folder = format!("{}/", self.path().display());
        loaded.map_err(|errors| errors.to_string().replace(&folder, ""))
    }
}

const CAMPAIGN: &str = "[[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n";

#[track_caller]
fn check_wrong(files: &[(&str, &str)], expected: &str) {
    assert_eq!(Folder::new(files).load().unwrap_err(), expected);
}

#[track_caller]
fn check_csv(text: &str, expected: &str) {
    check_wrong(&[("campaigns/a.csv", text)], &format!("campaigns/a.csv:{expected}"));
}

/// The numbers and names of all campaigns, in order.
fn campaigns(config: &Config) -> Vec<(u32, String)> {
    let campaigns = config.policy.campaigns();
    let mut campaigns: Vec<_> =
        campaigns.map(|one| (one.spreadid.0, one.name.to_string())).collect();
    campaigns.sort_unstable();
    campaigns
}

#[test]
fn catalogue_files_add_entries_of_all_kinds() {
    let more = format!(
        "[[apps]]\npid = 2\nkey = \"app-y\"\n[[channels]]\nid = \"weibo\"\n{CAMPAIGN}name = \"Spring\"\n\
         [campaigns.attribution]\nclick_window = \"3d\"\n\
         [[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://a.example/\"\n\
         [[tokens]]\nid = \"t\"\nsha256 = \"{sha256}\"\napps = [\"app-y\"]\n\
         [[write_tokens]]\nid = \"w\"\nsha256 = \"{sha256}\"\napps = [\"*\"]\n\
         [[callbacks.endpoint]]\nname = \"e\"\npreset = \"webhook\"\nurl = \"https://a.example/\"\n",
        sha256 = "0".repeat(64),
    );
    let csv = "pid,spreadid,channel\n2,8,weibo\n";
    let folder = Folder::new(&[("campaigns/b.toml", &more), ("campaigns/a.csv", csv)]);
    let config = folder.load().unwrap();
    assert_eq!(campaigns(&config), [(7, "Spring".into()), (8, String::new())]);
    let spring = config.policy.campaign(Pid(1), SpreadId(7)).unwrap();
    assert_eq!(spring.windows.click_ms, 3 * DAY_MS);
    assert_eq!(config.channels, ["toutiao".into(), "weibo".into()]);
    assert_eq!((config.links.len(), config.tokens.len(), config.write_tokens.len()), (1, 1, 1));
    assert_eq!(config.callbacks.endpoints.len(), 1);
}

#[test]
fn other_layers_still_override_the_settings() {
    let settings =
        format!("{CATALOGUE}[kafka]\ngroup = \"g\"\n[include]\ncatalogue = \"absent.toml\"\n");
    let folder = Folder::with(&settings, &[("campaigns/a.toml", CAMPAIGN)]);
    let file = folder.path().join("adtrail.toml");
    let environment = pair("ADTRAIL__INCLUDE__CATALOGUE", "campaigns/a.toml");
    let sources = Sources { file: Some(&file), environment, flags: pair("kafka.group", "h") };
    let config = load(&sources).unwrap();
    assert_eq!((config.kafka.group.as_str(), campaigns(&config).len()), ("h", 1));
    let environment = pair("ADTRAIL__INCLUDE__CATALOGUE", "['campaigns/*.toml']");
    let sources = Sources { file: Some(&file), environment, flags: Vec::new() };
    assert_eq!(campaigns(&load(&sources).unwrap()).len(), 1);
}

#[test]
fn csv_is_read_as_spreadsheets_write_it() {
    let text = "\u{feff}spreadid,pid,channel,name,click_window,impression_probabilistic_window\r\n\
                7,1,toutiao,\"Say \"\"hi\"\", \u{4f60}\u{597d}\",3d,\r\n 8 ,1,toutiao,,,2h\r\n,,,,,\r\n";
    let config = Folder::new(&[("campaigns/a.csv", text)]).load().unwrap();
    assert_eq!(
        campaigns(&config),
        [(7, "Say \"hi\", \u{4f60}\u{597d}".into()), (8, String::new())]
    );
    let windows = |spreadid| {
        let windows = config.policy.campaign(Pid(1), SpreadId(spreadid)).unwrap().windows;
        (windows.click_ms, windows.impression_probabilistic_ms)
    };
    assert_eq!(windows(7), (3 * DAY_MS, 6 * HOUR_MS));
    assert_eq!(windows(8), (7 * DAY_MS, 2 * HOUR_MS));
}

#[test]
#[rustfmt::skip]
fn errors_in_csv_have_file_and_line() {
    const COLUMNS: &str = "spreadid, pid, channel, name, click_window, click_probabilistic_window, impression_window, impression_probabilistic_window";
    check_csv("spreadid,pid,channel\n7,1,toutia\n", "2: campaigns[0].channel: expected the id of one of the [[channels]], the nearest is \"toutiao\": \"toutia\"");
    check_csv("spreadid,pid,channel\r\n7,1,toutiao\r\n\r\n8,2,toutiao\r\n", "4: campaigns[1].pid: expected the pid of one of the [[apps]], which is 1: 2");
    check_csv("spreadid,pid,channel,name\n\n7,1,toutiao,\"a\"\"\"\nx,1,toutiao,\n", "4: campaigns[1].spreadid: expected an integer from 1 to 4294967295: \"x\"");
    check_csv("\u{feff}spreadid,pid,channel\r\n7,1,toutia\r\n", "2: campaigns[0].channel: expected the id of one of the [[channels]], the nearest is \"toutiao\": \"toutia\"");
    check_csv("spreadid,pid,channel\n7,1,\n", "2: campaigns[0].channel: missing, expected the id of one of the [[channels]]");
    check_csv("spreadid,pid,channel,click_window\n7,1,toutiao,3\n", "2: campaigns[0].attribution.click_window: no unit, expected one of ms, s, m, h, d, w as in \"7d\": \"3\"");
    check_csv("spreadid,pid,chanel\n", &format!("1: column \"chanel\": unknown, the nearest known one is: channel\ncampaigns/a.csv:1: column \"channel\": missing, expected a header with some of {COLUMNS}"));
    check_csv("spreadid,pid,channel,pid\n", "1: column \"pid\": expected once");
    check_csv("spreadid,pid,channel\n7,1,toutiao\n8,1,toutiao,Spring\n", "3: expected 3 cells as in the header, found 4: quote a cell that contains a comma");
    check_csv("spreadid,pid,channel\n7,1,toutiao\n7,1,toutiao\n", "3: campaigns[1].spreadid: expected a unique value, campaigns/a.csv:2 has the same: 7");
}

/// The rows up to the next quote would be part of the name.
#[test]
fn a_cell_without_its_closing_quote_does_not_hide_the_rows_after_it() {
    let check = |rows: &str, line: usize| {
        let text = format!("spreadid,pid,channel,name\n{rows}");
        let problem = "expected no line break in a cell: a closing quote may be missing";
        check_csv(&text, &format!("{line}: {problem}"));
    };
    check("7,1,toutiao,\"Spring\n8,1,toutiao,Summer\n", 2);
    check("7,1,toutiao,Spring\n8,1,toutiao,\"\n9,1,toutiao,Summer\n", 3);
    check("7,1,toutiao,\"Spring\r\n8,1,toutiao,\"Summer\"\r\n", 2);
    check("7,1,toutiao,Spring\n8,1,toutiao,\"Summer\n", 3);
}

#[test]
fn csv_of_another_encoding_is_refused() {
    let folder = Folder::new(&[]);
    let gbk = b"spreadid,pid,channel,name\n7,1,toutiao,\xc4\xe3\n";
    std::fs::write(folder.path().join("campaigns/a.csv"), gbk).unwrap();
    let expected = "campaigns/a.csv:2: not UTF-8 text: a spreadsheet must save it as \"CSV UTF-8\"";
    assert_eq!(folder.load().unwrap_err(), expected);
}

#[test]
fn duplicates_name_both_places() {
    let csv = "spreadid,pid,channel\n7,1,toutiao\n";
    let expected = "campaigns/b.toml:2: campaigns[0].spreadid: expected a unique value, campaigns/a.csv:2 has the \
                    same: 7";
    check_wrong(&[("campaigns/b.toml", CAMPAIGN), ("campaigns/a.csv", csv)], expected);
    let token =
        format!("[[tokens]]\nid = \"t\"\nsha256 = \"{}\"\napps = [\"*\"]\n", "0".repeat(64));
    let expected = "campaigns/b.toml:2: tokens[0].id: expected a unique value, campaigns/a.toml:2 has the same: \"t\"";
    check_wrong(&[("campaigns/a.toml", &token), ("campaigns/b.toml", &token)], expected);
}

#[test]
#[rustfmt::skip]
fn a_catalogue_file_has_nothing_but_lists() {
    const ALLOWED: &str = "not allowed in a catalogue file, which can have [[apps]], [[channels]], [[campaigns]], [[links]], [[tokens]], [[write_tokens]], [[callbacks.endpoint]]";
    let check = |text: &str, expected: &str| check_wrong(&[("campaigns/a.toml", text)], &format!("campaigns/a.toml:{expected}"));
    check("\n[kafka]\nbrokers = \"a\"\n", &format!("2: kafka: {ALLOWED}"));
    check("[[campaign]]\nspreadid = 7\n", &format!("1: campaign: {ALLOWED}, the nearest is [[campaigns]]"));
    check("[callbacks]\nsettle = \"1m\"\n", &format!("2: callbacks.settle: {ALLOWED}"));
    check("tokens = \"adt_secret\"", "1: tokens: expected tables [[tokens]], found a string");
    check("tokens = 1\ntokens = 2\n", "2: not TOML, column 1: duplicate key");
    // Another file's errors that follow from this one are not reported.
    check_wrong(&[("campaigns/a.toml", "[kafka]"), ("campaigns/b.csv", "spreadid,pid,channel\n7,9,x\n")], &format!("campaigns/a.toml:1: kafka: {ALLOWED}"));
}

#[test]
#[rustfmt::skip]
fn a_path_must_exist_and_a_directory_may_be_empty() {
    let check = |value: &str, expected: &str| {
        let loaded = Folder::with(&format!("[include]\ncatalogue = {value}\n"), &[]).load();
        assert_eq!(loaded.map(|config| campaigns(&config).len()).err().unwrap_or_default(), expected);
    };
    let quoted = |problem: &str, key: &str, value: &str| format!("adtrail.toml:2: include.catalogue{key}: expected {problem}: \"{value}\"");
    check("[]", "");
    check("\"campaigns/*.toml\"", "");
    check("\"campaigns/**/*.csv\"", "");
    check("\"*.csv\"", "");
    check("\"campaigns/a.toml\"", &quoted("the path of a file that exists, relative to the settings file", "", "campaigns/a.toml"));
    check("[\"campaings/*.toml\"]", &quoted("a pattern in a directory that exists, relative to the settings file", "[0]", "campaings/*.toml"));
    check("\"campaigns/*\"", &quoted("a path or a pattern of .toml or .csv files, such as \"campaigns/*.toml\"", "", "campaigns/*"));
    check("\"campaigns/[.toml\"", &quoted("a valid pattern of paths, but: invalid range pattern", "", "campaigns/[.toml"));
}

#[test]
fn a_directory_with_the_name_of_a_file_is_an_error() {
    let folder = Folder::with("[include]\ncatalogue = \"a.toml\"\n", &[]);
    std::fs::create_dir(folder.path().join("a.toml")).unwrap();
    let error = folder.load().unwrap_err();
    assert!(error.starts_with("a.toml: the file cannot be read"), "{error}");
}

/// No pattern matches in it.
#[test]
fn files_in_a_directory_whose_path_is_not_utf8_are_not_left_out() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(OsStr::from_bytes(b"\xb4\xba"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.toml"), CAMPAIGN).unwrap();
    let loaded = |catalogue: &str| {
        let file = folder.join("adtrail.toml");
        let settings = format!("{CATALOGUE}[include]\ncatalogue = \"{catalogue}\"\n");
        std::fs::write(&file, settings).unwrap();
        load(&Sources { file: Some(&file), ..Sources::default() })
    };
    assert_eq!(campaigns(&loaded("a.toml").unwrap()).len(), 1);
    let error = loaded("*.toml").unwrap_err().to_string();
    assert!(error.contains("include.catalogue: expected a path without wildcards"), "{error}");
}

#[test]
fn hidden_files_are_not_read() {
    let hidden = [("campaigns/.a.toml", "not TOML"), ("campaigns/.b.csv", "not CSV")];
    assert!(campaigns(&Folder::new(&hidden).load().unwrap()).is_empty());
}

#[test]
fn a_draft_is_checked_as_if_it_were_written() {
    let folder = Folder::new(&[("campaigns/a.toml", CAMPAIGN)]);
    let eight = CAMPAIGN.replace('7', "8");
    let load = |name: &str, text: &str| {
        let spreadids =
            |config: Config| campaigns(&config).into_iter().map(|(spreadid, _)| spreadid);
        folder.load_draft(name, text).map(|config| spreadids(config).collect::<Vec<_>>())
    };
    assert_eq!(load("campaigns/a.toml", &eight), Ok(vec![8]));
    assert_eq!(load("campaigns/b.toml", &eight), Ok(vec![7, 8]));
    assert!(
        load("campaigns/b.toml", CAMPAIGN).is_err_and(|error| error.contains("a unique value"))
    );
    assert!(!folder.path().join("campaigns/b.toml").exists());
    let outside = load("c.toml", &eight).unwrap_err();
    assert!(
        outside.contains("include.catalogue: expected a path or a pattern that matches"),
        "{outside}"
    );
}

/// Loading must not take quadratic time: with it, this test would take minutes.
#[test]
fn a_hundred_thousand_campaigns_and_links_are_loaded() {
    const COUNT: usize = 100_000;
    let mut csv = "spreadid,pid,channel,name,click_window\n".to_owned();
    let mut toml = String::new();
    for number in 1..=COUNT {
        writeln!(csv, "{number},1,toutiao,Campaign {number},3d").unwrap();
        if number % 10 == 0 {
            writeln!(
                toml,
                "[[links]]\nid = \"l{number}\"\nspreadid = {number}\nfallback = \"https://a.example/\"\n\
                 [[campaigns]]\nspreadid = {spreadid}\npid = 1\nchannel = \"toutiao\"\n\
                 [campaigns.attribution]\nclick_window = \"1d\"",
                spreadid = COUNT + number,
            )
            .unwrap();
        }
    }
    let config =
        Folder::new(&[("campaigns/a.csv", &csv), ("campaigns/b.toml", &toml)]).load().unwrap();
    assert_eq!(config.policy.campaigns().count(), COUNT + COUNT / 10);
    assert_eq!(config.links.len(), COUNT / 10);
    let last = config.policy.campaign(Pid(1), SpreadId(COUNT as u32)).unwrap();
    assert_eq!((&*last.name, last.windows.click_ms), ("Campaign 100000", 3 * DAY_MS));
}
