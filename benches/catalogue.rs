//! Measures how long settings with 100,000 campaigns in a catalogue file take to load.

#![allow(clippy::expect_used, reason = "a bench may fail loudly")]

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use config::Sources;

const CAMPAIGNS: u32 = 100_000;
const RUNS: usize = 5;
const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n[[channels]]\nid = \"c\"\n";

fn toml() -> String {
    let mut text = String::new();
    for number in 1..=CAMPAIGNS {
        let names = format!("channel = \"c\"\nname = \"Campaign {number}\"");
        let campaign = format!("[[campaigns]]\nspreadid = {number}\npid = 1\n{names}");
        writeln!(text, "{campaign}\n[campaigns.attribution]\nclick_window = \"3d\"")
            .expect("a string can be written");
    }
    text
}

fn csv() -> String {
    let mut text = "spreadid,pid,channel,name,click_window\n".to_owned();
    for number in 1..=CAMPAIGNS {
        writeln!(text, "{number},1,c,Campaign {number},3d").expect("a string can be written");
    }
    text
}

fn main() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    for (name, text) in [("campaigns.csv", csv()), ("campaigns.toml", toml())] {
        let settings = folder.path().join("adtrail.toml");
        let include = format!("{SETTINGS}[include]\ncatalogue = \"{name}\"\n");
        fs::write(&settings, include).expect("the settings can be written");
        fs::write(folder.path().join(name), text).expect("the file can be written");
        let sources = Sources { file: Some(&settings), ..Sources::default() };
        let mut seconds: Vec<f64> = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let start = Instant::now();
            let config = config::load(&sources).expect("the settings are valid");
            seconds.push(start.elapsed().as_secs_f64());
            assert_eq!(config.policy.campaigns().count(), CAMPAIGNS as usize);
        }
        seconds.sort_unstable_by(f64::total_cmp);
        let (median, slowest) = (seconds[RUNS / 2], seconds[RUNS - 1]);
        println!("{name}: {CAMPAIGNS} campaigns in {median:.2} s, at most {slowest:.2} s");
    }
}
