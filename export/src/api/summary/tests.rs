//! Summaries, compared with counting the export.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use store::layout::decimal_sum::Amount;
use store::reader::Reader;

use super::*;
use crate::query::Dialect;
use crate::tests::check_problem;
use crate::tests::fixture::{Bed, DAY, MINUTE, activation, click, effect, many_activations};
use crate::write_rows;

const HOUR: u64 = 60 * MINUTE;
/// Nights in which clocks change in Berlin and St. John's, and one when Monrovia was 44 minutes behind UTC.
const NIGHTS: [(u64, &str); 3] = [
    (1_774_742_400_000, "2026-03-29"),
    (1_289_088_000_000, "2010-11-07"),
    (34_128_000_000, "1971-01-31"),
];

/// A deterministic hash.
fn mixed(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Clicks, activations and effects of three days around each of the nights, half of them within the hours in which
/// clocks change.
fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    for (index, (night, _)) in NIGHTS.into_iter().enumerate() {
        for number in 0..800 {
            let time = match mixed(number * 3) % 2 {
                0 => night + mixed(number) % (4 * HOUR),
                _ => night - 36 * HOUR + mixed(number) % (72 * HOUR),
            };
            let device = format!("d-{index}-{}", mixed(number * 7) % 60);
            let id = format!("{index}-{number}");
            match number % 5 {
                0 => facts.push(click([7, 9][number as usize % 2], &id, &device, time)),
                1 | 2 => facts.push(Fact::Activation(activation(&id, &device, time))),
                _ => {
                    let name = ["purchase", "a,\"b\"\n", "activation"][number as usize % 3];
                    let mut effect = effect(&id, name, &device, time);
                    let revenue =
                        ["9.99", "-0.0000000000000000000000001", "", "12345678901234567890"];
                    effect.revenue = revenue[number as usize % 4].into();
                    effect.currency = ["CNY", "", "U,SD"][number as usize % 3].into();
                    facts.push(Fact::Effect(effect));
                }
            }
        }
    }
    facts
}

static NIGHTLY: LazyLock<Bed> = LazyLock::new(|| Bed::new(facts()));

/// A number to sort by, or 0, and the cell.
type Key = (u32, String);

/// Counts the export of the same query.
fn counted(parameters: &[(&str, String)], by: &[&str]) -> String {
    let Bed { reader, config, .. } = &*NIGHTLY;
    let fields = "event_time,event_type,event_name,status,install_type,spreadid,campaign,channel,\
                  currency,revenue";
    let pairs = parameters.iter().map(|(name, value)| (*name, value.as_str()));
    let query =
        ExportQuery::parse(Format::Csv, pairs.chain([("fields", fields)])).expect("a query");
    let mut file = Vec::new();
    let app = config.policy.app_by_key("app-x").expect("the app");
    let sink = |chunk: crate::Chunk| {
        file.extend(chunk.bytes);
        ControlFlow::Continue(())
    };
    write_rows(reader, &[app], &query, &config.policy, sink).expect("an export");
    let mut rows = csv::Reader::from_reader(&*file);
    let names = rows.headers().expect("names").clone();
    let mut sums: BTreeMap<(Vec<Key>, String), (u64, Amount)> = BTreeMap::new();
    for row in rows.records().map(Result::unwrap) {
        let cell = |name: &str| &row[names.iter().position(|known| known == name).unwrap()];
        let key = |by: &&str| match *by {
            "day" => (0, cell("event_time")[..10].to_owned()),
            "spreadid" => (cell("spreadid").parse().unwrap(), cell("spreadid").to_owned()),
            by => (0, cell(by).to_owned()),
        };
        let keys = by.iter().map(key).collect();
        let sum = sums.entry((keys, cell("currency").into())).or_default();
        sum.0 += 1;
        sum.1.add(&Amount::parse(cell("revenue")).unwrap());
    }
    if sums.is_empty() && by.is_empty() {
        sums.insert(Default::default(), Default::default());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(by.iter().chain(&["currency", "count", "revenue"])).unwrap();
    for ((keys, currency), (count, revenue)) in sums {
        let keys = keys.into_iter().map(|(_, text)| text);
        let figures = [currency, count.to_string(), revenue.to_string()];
        writer.write_record(keys.chain(figures)).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

fn summed(parameters: &[(&str, String)], by: &[&str]) -> String {
    let Bed { reader, config, .. } = &*NIGHTLY;
    let by = by.join(",");
    let by = (!by.is_empty()).then_some((BY, by.as_str()));
    let pairs = parameters.iter().map(|(name, value)| (*name, value.as_str()));
    let query = SummaryQuery::parse(Form::Csv, pairs.chain(by)).expect("a query");
    let app = config.policy.app_by_key("app-x").expect("the app");
    let groups = summarise(reader, app, &query, &config.policy).expect("a summary");
    let pieces = pieces(SummaryBody::csv(Dialect::Data, groups.into_lines()));
    String::from_utf8(pieces.concat()).unwrap()
}

fn pieces(mut body: SummaryBody) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| body.next_piece()).collect()
}

fn parameters() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let zones =
        ["UTC", "Europe/Berlin", "America/St_Johns", "Africa/Monrovia", "Asia/Kathmandu", "-03:37"];
    let night = select(NIGHTS.to_vec());
    // Any millisecond, or a quarter of an hour.
    let edge = || prop_oneof![0..72 * HOUR, (0..288u64).prop_map(|quarter| quarter * 15 * MINUTE)];
    let range = (night, edge(), edge(), any::<u8>()).prop_map(|((night, date), a, b, how)| {
        let text = |ms: u64| {
            let ms = (night - 36 * HOUR + ms).cast_signed();
            jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
        };
        match how % 4 {
            0 => (date.to_owned(), date.to_owned()),
            1 => ("1971-01-02".to_owned(), "2030-01-01T00:00:00.001Z".to_owned()),
            _ => (text(a.min(b)), text(a.max(b))),
        }
    });
    let filters = vec![
        (TYPE, "effect"),
        (EVENT_NAME, "purchase,activation"),
        (STATUS, "attributed,orphan"),
        (CHANNEL, "\"tou,tiao\""),
        (SPREADID, "0,9"),
        (INSTALL_TYPE, "install,duplicate"),
    ];
    let filters = prop_oneof![2 => Just(vec![]), 3 => subsequence(filters, 1..3)];
    (range, select(zones.to_vec()), filters).prop_map(|((from, to), zone, filters)| {
        let filters = filters.into_iter().map(|(name, value)| (name, value.to_owned()));
        let range = [(FROM, from), (TO, to), (TIMEZONE, zone.to_owned())];
        range.into_iter().chain(filters).collect()
    })
}

fn by() -> impl Strategy<Value = Vec<&'static str>> {
    let all: Vec<_> = Dimension::names().collect();
    subsequence(all, 0..=4).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_summary_equals_the_counted_export(parameters in parameters(), by in by()) {
        prop_assert_eq!(summed(&parameters, &by), counted(&parameters, &by));
    }
}

/// The number of rows read so far.
fn reads(reader: &Reader) -> u64 {
    reader.regions().expect("an embedded store").iter().map(|region| region.reads.total).sum()
}

#[test]
fn rows_are_read_only_at_the_edges() {
    let rows = |hours: u64| -> Vec<Fact> {
        let of_minute = |minute| {
            let id = format!("a-{minute}");
            Fact::Activation(activation(&id, &id, DAY + minute * MINUTE))
        };
        (0..hours * 60).map(of_minute).collect()
    };
    let check = |hours: u64, from: &str, zone: &str, expected: u64| {
        let Bed { reader, config, .. } = &Bed::new(rows(hours));
        let parameters = [(FROM, from), (TO, "2026-03-12"), (TIMEZONE, zone), (BY, "day,status")];
        let query = SummaryQuery::parse(Form::Json, parameters).unwrap();
        let app = config.policy.app_by_key("app-x").unwrap();
        let before = reads(reader);
        summarise(reader, app, &query, &config.policy).unwrap();
        assert_eq!(reads(reader) - before, expected, "{from} {hours}");
    };
    for hours in [2, 40] {
        check(hours, "2026-03-10", "UTC", 0);
        check(hours, "2026-03-09", "Asia/Kathmandu", 0);
        check(hours, "2026-03-10T01:07Z", "UTC", 8);
    }
}

#[test]
fn expected_rows_are_those_of_the_export() {
    let Bed { reader, config, .. } = &Bed::new(many_activations(7_200));
    let app = config.policy.app_by_key("app-x").unwrap();
    let check = |from, to, more: &[(&str, &str)], expected| {
        let range = [("from", from), ("to", to)];
        let query = ExportQuery::parse(Format::Csv, range.iter().chain(more).copied()).unwrap();
        let rows = expected_rows(reader, app, &query, &config.policy).unwrap();
        assert_eq!(rows, Some(expected), "{from} {to} {more:?}");
    };
    let (day, two) = ("2026-03-10", "2026-03-10T02:00");
    check(day, day, &[], 7_200);
    check("2026-03-10T00:05", "2026-03-10T00:10", &[], 300);
    check("2026-03-10T01:50", two, &[], 600);
    check(day, day, &[("limit", "5")], 5);
    check(day, day, &[("status", "organic")], 7_200);
    check(day, day, &[("type", "effect")], 0);
    check(two, two, &[], 0);
}

fn bed() -> Bed {
    let mut other = activation("b-1", "d9", DAY + MINUTE);
    other.pid = attribution::facts::event::Pid(2);
    Bed::new(vec![
        click(7, "c-1", "d1", DAY - MINUTE),
        Fact::Activation(activation("a-1", "d1", DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", "d1", DAY + 2 * MINUTE)),
        Fact::Effect(effect("e-2", "purchase", "d1", DAY + 3 * MINUTE)),
        Fact::Activation(activation("a-2", "d2", DAY + 20 * MINUTE)),
        Fact::Activation(other),
    ])
}

const SUMMARY: &str = "/v1/apps/app-x/summary?from=2026-03-10&to=2026-03-10";

#[test]
fn a_summary_is_json_or_csv() {
    let bed = bed();
    let answer = bed.get(&format!("{SUMMARY}&by=day,channel,event_name"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let expected = serde_json::json!({
        "app": "app-x",
        "from": "2026-03-10T00:00:00.000Z",
        "to": "2026-03-11T00:00:00.000Z",
        "timezone": "UTC",
        "by": ["day", "channel", "event_name"],
        "groups": [
            {"day": "2026-03-10", "channel": null, "event_name": "activation", "count": 1, "revenue": {}},
            {"day": "2026-03-10", "channel": "tou,tiao", "event_name": "activation", "count": 1, "revenue": {}},
            {"day": "2026-03-10", "channel": "tou,tiao", "event_name": "purchase", "count": 2, "revenue": {"CNY": "19.98"}},
        ],
    });
    assert_eq!(answer.json(), expected);
    assert!(answer.text().contains(r#"{"day":"2026-03-10","channel":null,"event_name""#));

    let csv =
        bed.get(&format!("{}&by=spreadid,channel", SUMMARY.replace("summary", "summary.csv")));
    let expected = "spreadid,channel,currency,count,revenue\n0,,,1,0\n7,\"tou,tiao\",,1,0\n\
                    7,\"tou,tiao\",CNY,2,19.98\n";
    assert_eq!(csv.text(), expected);
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let name = "attachment; filename=\"summary_app-x_2026-03-10_2026-03-10_UTC.csv\"";
    assert_eq!(csv.header("content-disposition"), Some(name));
    assert_eq!(csv.header("adtrail-range-to"), Some("2026-03-11T00:00:00.000Z"));

    let head = bed.send(&format!("HEAD {SUMMARY} HTTP/1.1"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), None, "the body is not computed");
    let total = bed.get(&format!("{SUMMARY}&status=rejected")).json();
    assert_eq!(total["groups"], serde_json::json!([{"count": 0, "revenue": {}}]));
    assert_eq!(
        bed.get("/v1/apps/app%20y/summary?from=2026-03-10&to=2026-03-10").json()["groups"][0]["count"],
        1
    );
}

#[test]
fn invalid_summary_requests_are_problems() {
    let bed = bed();
    let check = |target: &str, status, kind, parameter| {
        check_problem(&bed.get(target), status, kind, parameter);
    };
    check("/v1/apps/app-x/summary?from=2026-03-10", 400, "missing-parameter", Some("to"));
    check(&format!("{SUMMARY}&by=dya"), 400, "bad-parameter", Some("by"));
    check(&format!("{SUMMARY}&by=day&by=day"), 400, "bad-parameter", Some("by"));
    check(&format!("{SUMMARY}&by="), 400, "bad-parameter", Some("by"));
    check(&format!("{SUMMARY}&channel=x"), 400, "bad-parameter", Some("channel"));
}

/// Adds a row of an event with this name.
fn add(groups: &mut Groups<'_>, event_name: &str) -> Result<(), ExportError> {
    let what = Dimensions {
        event_type: attribution::rules::row::EventType::Effect,
        status: attribution::rules::row::Status::Organic,
        install_type: None,
        event_name,
        currency: "",
    };
    let (pid, spreadid) =
        (attribution::facts::event::Pid(1), attribution::facts::event::SpreadId(0));
    let counted = SummaryKey { pid, time: EventTime::default(), spreadid, what };
    groups.add(0, &counted, &Totals::row(""))
}

#[test]
fn the_number_of_groups_is_limited() {
    let by = [Dimension::EventName];
    let policy = Policy::new(vec![], vec![]);
    let mut groups = Groups::new(&by, &policy);
    let mut add = |number: usize| add(&mut groups, &number.to_string());
    assert!((0..groups::GROUPS_MAX).all(|number| add(number).is_ok()));
    assert!(add(0).is_ok());
    let error = add(groups::GROUPS_MAX).unwrap_err();
    assert!(error.to_string().contains("more than 100000 groups"), "{error}");
}

#[test]
fn the_size_of_names_is_limited() {
    let by = [Dimension::Status, Dimension::EventName];
    let policy = Policy::new(vec![], vec![]);
    let mut groups = Groups::new(&by, &policy);
    let mut add = |letter: &str| add(&mut groups, &letter.repeat(groups::TEXTS_BYTES_MAX / 2));
    assert!(["a", "b", "a", "b"].into_iter().all(|letter| add(letter).is_ok()));
    let error = add("c").unwrap_err().to_string();
    assert!(error.contains("names of more than 8388608 bytes; shorten the range"), "{error}");
}

#[test]
fn a_response_is_written_in_pieces() {
    let by = [Dimension::EventName];
    let policy = Policy::new(vec![], vec![]);
    let lines = |count: usize| {
        let mut groups = Groups::new(&by, &policy);
        (0..count).for_each(|number| add(&mut groups, &format!("{number:01000}")).unwrap());
        groups.into_lines()
    };
    let query = ExportQuery::all_time();
    for count in [0, 1, 1_000] {
        for body in [
            SummaryBody::csv(Dialect::Data, lines(count)),
            SummaryBody::json("app-x", &query, lines(count)),
        ] {
            let pieces = pieces(body);
            assert!(if count < 2 { pieces.len() == 1 } else { pieces.len() > 10 }, "{count}");
            assert!(pieces.iter().all(|piece| (1..68 << 10).contains(&piece.len())));
        }
    }
    let json = pieces(SummaryBody::json("app-x", &query, lines(1_000))).concat();
    let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(document["groups"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(document["groups"][7]["count"], 1);
}

#[test]
fn a_summary_has_an_excel_dialect() {
    let mut facts = vec![Fact::Effect(effect("e-1", ";=1+1", "device-1", DAY + MINUTE))];
    facts.push(Fact::Effect(effect("e-2", "=1+1", "device-1", DAY + 2 * MINUTE)));
    let bed = Bed::new(facts);
    let csv = SUMMARY.replace("summary", "summary.csv");
    let excel = bed.get(&format!("{csv}&by=day,event_name&dialect=excel"));
    let lines = [
        "\u{feff}day,event_name,currency,count,revenue",
        "2026-03-10,\";'=1+1\",CNY,1,9.99",
        "2026-03-10,'=1+1,CNY,1,9.99",
        "",
    ];
    assert_eq!(excel.text(), lines.join("\r\n"));
    let data = bed.get(&format!("{csv}&by=event_name&dialect=data"));
    assert_eq!(data.text(), bed.get(&format!("{csv}&by=event_name")).text());
    check_problem(&bed.get(&format!("{csv}&dialect=x")), 400, "bad-parameter", Some("dialect"));
    let json = bed.get(&format!("{SUMMARY}&dialect=excel"));
    check_problem(&json, 400, "unknown-parameter", Some("dialect"));
}
