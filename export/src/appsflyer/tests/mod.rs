//! Reports, byte for byte as clients get them.

mod reports;
mod requests;

use attribution::facts::event::{Fact, Purpose, TouchFields, TouchKind};

use super::column::additional_names;
use crate::tests::fixture::{self, Answer, Bed, DAY, MINUTE, activation, at, click, effect};

const HOUR: u64 = 60 * MINUTE;

const DAY_MS: u64 = 24 * HOUR;

const SETTINGS: &str = r#"
    [store]
    retention = "off"
    partitions = 4
    [fraud]
    block_ips = ["203.0.113.66/32"]
    [attribution]
    probabilistic = true
    [[apps]]
    pid = 1
    key = "app-x"
    name = "App, X"
    [apps.store]
    fanout = 4
    [[apps]]
    pid = 2
    key = "app y"
    [[channels]]
    id = "tou,tiao"
    [[channels]]
    id = "kuai"
    [[campaigns]]
    spreadid = 7
    pid = 1
    channel = "tou,tiao"
    name = 'Say "hi"'
    [[campaigns]]
    spreadid = 8
    pid = 1
    channel = "kuai"
    name = "Back"
"#;

fn touch(fact: Fact, change: impl FnOnce(&mut TouchFields)) -> Fact {
    let Fact::Touch(touch) = fact else { panic!("no touch") };
    let mut fields = TouchFields::from(&touch);
    change(&mut fields);
    Fact::Touch(fields.into())
}

/// These devices: one installs by an ad, buys, is reattributed by retargeting and buys again; one installs and
/// reinstalls organically; one installs by an ad and reinstalls organically; one is blocked. One effect is an orphan.
fn facts() -> Vec<Fact> {
    let pair = |key: &str, value: &str| (Box::from(key), Box::from(value));
    let mut install = activation("a-1", "d1", DAY + MINUTE);
    install.install_begin_time = Some(at(DAY + 30_000));
    install.props = vec![pair("store", "huawei")];
    install.device.os = "Android".into();
    install.device.ip = "203.0.113.9".into();
    install.device.model = "V2,\"x\"".into();
    for (kind, id) in
        [("gaid", "38400000-8cf0-11bd-b23e-10b96e40000d"), ("imei", "490154203237518")]
    {
        install.ids.push(pair(kind, id));
    }
    install.ids.sort();
    let mut buys = effect("e-1", "purchase", "d1", DAY + 2 * MINUTE);
    buys.currency = "USD".into();
    let mut bare = effect("e-2", "=level, \"up\"\r\n", "d1", DAY + 3 * MINUTE);
    (bare.revenue, bare.currency, bare.props) = ("".into(), "".into(), vec![]);
    let mut blocked = activation("a-9", "d9", DAY + 4 * MINUTE);
    blocked.device.ip = "203.0.113.66".into();
    let with_params = |touch: &mut TouchFields| {
        touch.site = "site, 1".into();
        let ad =
            [("ad_id", "41"), ("ad_name", "Ad 1"), ("adset_id", "31"), ("adset_name", "Set, 1")];
        let others = [("callback", "token"), ("channel", "douyin"), ("creative_id", "61")];
        touch.params =
            ad.into_iter().chain(others).map(|(name, value)| pair(name, value)).collect();
        let subs = ["sub1", "sub2", "sub5", "sub6"];
        touch.params.extend(subs.map(|name| pair(name, &name[3..])));
    };
    vec![
        touch(click(9, "c-0", "d1", DAY - 3 * MINUTE), |touch| touch.kind = TouchKind::Impression),
        click(8, "c-8", "d1", DAY - 2 * MINUTE),
        touch(click(7, "c-1", "d1", DAY - MINUTE), with_params),
        Fact::Activation(install),
        Fact::Effect(buys),
        Fact::Effect(bare),
        touch(click(8, "c-2", "d1", DAY + 9 * DAY_MS), |touch| {
            touch.purpose = Purpose::Retargeting;
            touch.lookback_ms = Some(36 * HOUR);
            touch.params = vec![pair("creative_id", "51"), pair("creative_name", "C, 1")];
        }),
        Fact::Activation(activation("a-2", "d1", DAY + 9 * DAY_MS + HOUR)),
        Fact::Effect(effect("e-3", "purchase", "d1", DAY + 9 * DAY_MS + 2 * HOUR)),
        Fact::Activation(activation("o-1", "d2", DAY + 5 * MINUTE)),
        Fact::Effect(effect("e-4", "purchase", "d2", DAY + 6 * MINUTE)),
        Fact::Activation(activation("o-2", "d2", DAY + 8 * DAY_MS)),
        touch(click(7, "c-3", "d3", DAY), |touch| touch.purpose = Purpose::Retargeting),
        Fact::Activation(activation("a-3", "d3", DAY + 7 * MINUTE)),
        Fact::Activation(activation("a-4", "d3", DAY + 20 * DAY_MS)),
        Fact::Effect(effect("e-5", "purchase", "d3", DAY + 20 * DAY_MS + HOUR)),
        Fact::Activation(blocked),
        Fact::Effect(effect("e-9", "purchase", "d9", DAY + 8 * MINUTE)),
        Fact::Effect(effect("e-8", "purchase", "d8", DAY + 8 * MINUTE)),
    ]
}

fn bed() -> Bed {
    bed_of(facts())
}

fn bed_of(facts: Vec<Fact>) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config::parse(SETTINGS).unwrap();
    config.store.path = dir.path().join("store");
    let reader = fixture::fill(&config, facts);
    Bed::over(dir, config, reader)
}

const MONTH: &str = "from=2026-03-01&to=2026-03-31";

fn pull(bed: &Bed, report: &str, more: &str) -> Answer {
    bed.get(&format!("/api/raw-data/export/app/app-x/{report}/v5?{more}"))
}

/// Returns the cells of a file with their headings.
fn records(text: &str) -> Vec<Vec<(String, String)>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().unwrap().clone();
    let record = |record: csv::StringRecord| {
        let cells = headings.iter().zip(&record);
        cells.map(|(heading, cell)| (heading.to_owned(), cell.to_owned())).collect()
    };
    reader.records().map(|line| record(line.unwrap())).collect()
}

/// Returns the cells of one column.
fn cells(answer: &Answer, heading: &str) -> Vec<String> {
    assert_eq!((answer.status, answer.is_ended), (200, true), "{}", answer.text());
    let of = |record: Vec<(String, String)>| {
        record.into_iter().find(|(name, _)| name == heading).expect("a column").1
    };
    records(answer.text()).into_iter().map(of).collect()
}

fn additional() -> String {
    additional_names().join(",")
}
