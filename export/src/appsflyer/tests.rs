//! Reports, byte for byte as clients get them.

use attribution::facts::event::{Fact, Purpose, Touch, TouchKind};
use serde_json::Value;

use super::column::{Cell, additional_names, columns};
use super::field_list;
use super::report::Kind;
use crate::ExportQuery;
use crate::Format;
use crate::http::state::SCANS_MAX;
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

fn touch(fact: Fact, change: impl FnOnce(&mut Touch)) -> Fact {
    let Fact::Touch(mut touch) = fact else { panic!("no touch") };
    change(&mut touch);
    Fact::Touch(touch)
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
    let with_params = |touch: &mut Touch| {
        touch.site = "site, 1".into();
        touch.params = ["sub1", "sub2", "sub5", "sub6"].map(|name| pair(name, &name[3..])).into();
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

/// `golden.csv` has all reports of the month in Shanghai time, with every additional field.
#[test]
fn every_report_equals_its_golden_file() {
    let bed = bed();
    let mut all = String::new();
    for report in Kind::names() {
        let more =
            format!("{MONTH}&timezone=Asia/Shanghai&additional_fields={},own_one", additional());
        let answer = pull(&bed, report, &more);
        assert_eq!((answer.status, answer.is_ended), (200, true), "{}", answer.text());
        all += &format!("# {report}\n{}", answer.text());
    }
    let golden = include_str!("golden.csv");
    let lines = all.lines().zip(golden.lines());
    lines.for_each(|(found, expected)| assert_eq!(found, expected));
    assert_eq!(all, golden);
}

#[test]
fn columns_have_the_order_on_which_clients_rely() {
    let facts = include_str!("headings.txt").trim_end();
    let bed = bed();
    let answer = pull(&bed, "reinstalls", "from=2020-01-01&to=2020-01-01");
    assert_eq!((answer.status, answer.text()), (200, &*format!("{facts}\n")));
    let headings = format!("{facts},Event X,\"b,\"\"\"\"\",oaid,Is LAT,Is LAT");
    let additional =
        "additional_fields=Event%20X,%22b,%22%22%22%22%22,,is_lat&additional_fields=is_lat";
    let answer =
        pull(&bed, "installs_report", &format!("from=2020-01-01&to=2020-01-01&{additional}"));
    assert_eq!(answer.text(), format!("{}\n", headings.replace(",oaid", "")));
    assert_eq!(facts.split(',').count(), 81);
    let known = columns().filter(|(_, cell)| *cell != Cell::Unknown);
    assert_eq!(known.count(), 48, "every known column has a heading");
}

#[test]
fn each_row_is_in_exactly_one_report() {
    let bed = bed();
    let mut reported = Vec::new();
    let mut check = |report: &str, expected: &[&str]| {
        let answer = pull(&bed, report, &format!("{MONTH}&additional_fields=event_id"));
        let ids = cells(&answer, "AppsFlyer ID").into_iter();
        let ids: Vec<_> = ids.zip(cells(&answer, "Event Time")).collect();
        let ids: Vec<_> = ids.iter().map(|(id, time)| format!("{id} {}", &time[8..16])).collect();
        assert_eq!(ids, expected, "{report}");
        reported.extend(ids);
    };
    check("installs_report", &["a-3 10 00:07", "a-1 10 00:01"]);
    // The first is an effect of a reinstall that carries the credit of its install.
    check("in_app_events_report", &["a-4 30 01:00", "a-1 10 00:03", "a-1 10 00:02"]);
    check("organic_installs_report", &["o-1 10 00:05"]);
    check("organic_in_app_events_report", &["o-1 10 00:06"]);
    check("installs-retarget", &["a-2 19 01:00"]);
    check("in-app-events-retarget", &["a-2 19 02:00"]);
    check("reinstalls", &["a-4 30 00:00", "o-2 18 00:00"]);
    check("blocked_installs_report", &["a-9 10 00:04"]);
    reported.sort();
    reported.dedup();
    assert_eq!(reported.len(), 12, "no row is in two reports");
}

/// Checks cells of a row of a report.
#[track_caller]
fn check_cells(bed: &Bed, (report, index): (&str, usize), expected: &[(&str, &str)]) {
    let answer = pull(bed, report, &format!("{MONTH}&additional_fields={}", additional()));
    let record = &records(answer.text())[index];
    for (heading, cell) in expected {
        let found = record.iter().find(|(name, _)| name == heading).expect("a column");
        assert_eq!(found.1, *cell, "{report}: {heading}");
    }
}

#[test]
fn cells_have_the_values_of_the_touch() {
    let bed = bed();
    let of_touch = [
        ("Attributed Touch Type", "click"),
        ("Attributed Touch Time", "2026-03-09 23:59:00"),
        ("Install Time", "2026-03-10 00:01:00"),
        ("Media Source", "tou,tiao"),
        ("Campaign", "Say \"hi\""),
        ("Campaign ID", "7"),
        ("Site ID", "site, 1"),
        ("Sub Param 2", "2"),
        ("Sub Param 3", ""),
        ("Sub Param 5", "5"),
        ("Contributor 1 Media Source", "kuai"),
        ("Contributor 1 Campaign", "Back"),
        ("Contributor 2 Media Source", "unknown"),
        ("Contributor 2 Touch Type", "impression"),
        ("Contributor 2 Match Type", "oaid"),
        ("Contributor 3 Touch Type", ""),
        ("AppsFlyer ID", "a-1"),
        ("App ID", "app-x"),
        ("App Name", "App, X"),
        ("Is Retargeting", "false"),
        ("Retargeting Conversion Type", ""),
        ("Attribution Lookback", "7d"),
        ("Is Primary Attribution", "true"),
        ("Install App Store", "huawei"),
        ("Google Play Install Begin Time", "2026-03-10 00:00:30"),
        ("Conversion Type", "install"),
        ("Campaign Type", "ua"),
        ("Match Type", "oaid"),
    ];
    check_cells(&bed, ("installs_report", 1), &of_touch);
    check_cells(&bed, ("in_app_events_report", 2), &of_touch);
}

#[test]
fn cells_have_the_values_of_the_event_and_its_class() {
    let bed = bed();
    let install = [
        ("Event Name", "install"),
        ("Event Value", "null"),
        ("Advertising ID", "38400000-8cf0-11bd-b23e-10b96e40000d"),
        ("IMEI", "490154203237518"),
        ("IP", "203.0.113.9"),
        ("Platform", "android"),
        ("Device Model", "V2,\"x\""),
        ("Rejected Reason", ""),
    ];
    check_cells(&bed, ("installs_report", 1), &install);
    let bought = [
        ("Event Name", "purchase"),
        ("Event Value", "{\"level\":\"3\"}"),
        ("Event Revenue", "9.99"),
        ("Event Revenue Currency", "USD"),
        ("Event Revenue USD", "9.99"),
        ("Advertising ID", ""),
    ];
    check_cells(&bed, ("in_app_events_report", 2), &bought);
    check_cells(
        &bed,
        ("in_app_events_report", 1),
        &[("Event Name", "=level, \"up\"\r\n"), ("Event Value", "null")],
    );
    let back = [
        ("Is Retargeting", "true"),
        ("Retargeting Conversion Type", "re-attribution"),
        ("Attribution Lookback", "36h"),
        ("Conversion Type", "reinstall"),
        ("Campaign Type", "retargeting"),
        ("Event Revenue USD", ""),
    ];
    check_cells(&bed, ("installs-retarget", 0), &back);
    check_cells(&bed, ("in-app-events-retarget", 0), &back);
    // The install is credited to retargeting; the effect is of its reinstall.
    let of_install = [("Is Retargeting", "true"), ("Retargeting Conversion Type", "")];
    check_cells(&bed, ("in_app_events_report", 0), &of_install);
    let organic = [
        ("Media Source", "organic"),
        ("Campaign ID", ""),
        ("Is Retargeting", "false"),
        ("Is Primary Attribution", ""),
        ("Campaign Type", "organic"),
    ];
    check_cells(&bed, ("organic_installs_report", 0), &organic);
    check_cells(&bed, ("organic_in_app_events_report", 0), &organic);
    let alone = [("Media Source", ""), ("Event Name", "reinstall"), ("Campaign Type", "")];
    check_cells(&bed, ("reinstalls", 0), &alone);
    let blocked = [("Rejected Reason", "blocked"), ("Blocked Reason", "blocked")];
    check_cells(&bed, ("blocked_installs_report", 0), &blocked);
}

#[test]
fn rows_are_filtered_and_limited_newest_first() {
    let bed = bed();
    let check = |report: &str, more: &str, expected: &[&str]| {
        let answer = pull(&bed, report, &format!("{MONTH}&{more}"));
        assert_eq!(cells(&answer, "AppsFlyer ID"), expected, "{report} {more}");
        assert_eq!(answer.header("link"), None);
    };
    check("installs_report", "maximum_rows=1", &["a-3"]);
    check("installs_report", "maximum_rows=1000000", &["a-3", "a-1"]);
    check("in_app_events_report", "event_name=purchase", &["a-4", "a-1"]);
    check("in_app_events_report", "event_name=purchase&maximum_rows=1", &["a-4"]);
    check("in_app_events_report", "event_name=login,nothing", &[]);
    check("installs_report", "event_name=install", &["a-3", "a-1"]);
    check("installs_report", "media_source=%22tou,tiao%22", &["a-3", "a-1"]);
    check("installs_report", "media_source=kuai", &[]);
    check("installs-retarget", "media_source=kuai,unknown", &["a-2"]);
    check("organic_installs_report", "media_source=organic", &["o-1"]);
    check("reinstalls", "media_source=organic", &[]);
    // Clients without filters send empty values.
    let nothing = "media_source=&event_name=&additional_fields=&currency=preferred";
    check("installs_report", nothing, &["a-3", "a-1"]);
    check("installs_report", "currency=USD", &["a-3", "a-1"]);
}

#[test]
fn a_range_includes_the_named_end() {
    let bed = bed();
    let check = |range: &str, expected: &[&str]| {
        let answer = pull(&bed, "in_app_events_report", range);
        assert_eq!(cells(&answer, "Event Time"), expected, "{range}");
    };
    let all = ["2026-03-10 00:03:00", "2026-03-10 00:02:00"];
    check("from=2026-03-10&to=2026-03-10", &all);
    check("from=2026-03-10%2000:02&to=2026-03-10%2000:03", &all);
    check("from=2026-03-10+00:02&to=2026-03-10+00:02", &all[1..]);
    check("from=2026-03-10%2000:02:00&to=2026-03-10%2000:02:59", &all[1..]);
    check("from=2026-03-10%2000:02:01&to=2026-03-10%2000:03:00", &all[..1]);
    check("from=2026-03-10T00:00:00Z&to=2026-03-10T00:02:59.999Z", &all[1..]);
    let there = ["2026-03-10 08:03:00", "2026-03-10 08:02:00"];
    check("from=2026-03-10%2008:00&to=2026-03-10&timezone=Asia/Shanghai", &there);
    check("from=2026-03-10&to=2026-03-10&timezone=America/New_York", &[]);
    check("from=2026-03-09&to=2026-03-09%2019:02:30&timezone=America/New_York", &[]);
}

/// Many rows of one millisecond, in all partitions of the app, come in reverse key order.
#[test]
fn rows_of_one_millisecond_have_a_fixed_order() {
    let facts = (0..300).map(|n| {
        let time = DAY + n / 100;
        Fact::Activation(activation(&format!("a-{n}"), &format!("device-{n}"), time))
    });
    let bed = bed_of(facts.collect());
    let events = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&fields=event_id";
    let mut expected: Vec<_> = bed.get(events).text().lines().skip(1).map(str::to_owned).collect();
    expected.reverse();
    assert_eq!(expected.len(), 300);
    for limit in [1, 99, 100, 101, 300, 301] {
        let more = format!("{MONTH}&maximum_rows={limit}");
        let found = cells(&pull(&bed, "organic_installs_report", &more), "AppsFlyer ID");
        assert_eq!(found[..], expected[..limit.min(300)]);
    }
}

/// Checks an error in the form that connectors parse.
#[track_caller]
fn check_refused(answer: &Answer, status: u16, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!answer.text().contains('\n'), "one line, for clients that read lines");
    let error = answer.json();
    assert!(error["error"].as_str().unwrap().contains(part), "{error}");
    assert_eq!(error["error"], error["message"]);
    assert_eq!(error["status"], status);
}

#[test]
fn errors_are_json() {
    let bed = bed();
    let check = |more: &str, part: &str| {
        check_refused(&pull(&bed, "installs_report", more), 400, part);
    };
    check("to=2026-03-10", "from is missing");
    check("from=2026-03-10", "to is missing");
    check("from=10.3.2026&to=2026-03-10", "from: expected");
    check("from=2026-03-10&to=2026-03-09", "to: expected a time that is not before from");
    check("from=2026-03-10%2008:00&to=2026-03-10%2007:59", "not before from");
    check("from=1969-12-31&to=2026-03-09", "from: expected a time within 1970");
    check("from=2026-03-10&to=9999-12-31T23:59:59.9999Z", "to: expected a time within 1970");
    check(&format!("{MONTH}&timezone=Asia/Shangai"), "Asia/Shanghai");
    check(&format!("{MONTH}&maximum_rows=0"), "maximum_rows: expected");
    check(&format!("{MONTH}&currency=CNY"), "currency: expected preferred, or USD");
    check(&format!("{MONTH}&media_source=kua"), "the nearest is \"kuai\"");
    check(&format!("{MONTH}&from=2026-03-02"), "from is given more than once");
    check(&format!("{MONTH}&geo=CN"), "unknown parameter (allowed: from, to, timezone,");
    check(&format!("{MONTH}&timezone=%ff"), "timezone");
    let report = pull(&bed, "uninstall_events_report", MONTH);
    check_refused(&report, 404, "(allowed: installs_report, in_app_events_report");
    let api = "/api/raw-data/export/app";
    check_refused(&bed.get(&format!("{api}/app-z/installs_report/v5?{MONTH}")), 404, "app-z");
    check_refused(&bed.get(&format!("{api}/app-x/installs_report/v6?{MONTH}")), 404, "this path");
    check_refused(&bed.get("/api/"), 404, "this path");
    let post = bed.send(&format!("POST {api}/app-x/installs_report/v5?{MONTH} HTTP/1.1"));
    check_refused(&post, 405, "GET or HEAD");
    assert_eq!(post.header("allow"), Some("GET,HEAD"));
    let old = bed.send(&format!("GET {api}/app-x/installs_report/v5?{MONTH} HTTP/1.0"));
    check_refused(&old, 505, "HTTP/1.1");
    let all = bed.state.scans.clone().try_acquire_many_owned(SCANS_MAX as u32).unwrap();
    let busy = pull(&bed, "installs_report", MONTH);
    check_refused(&busy, 429, "too many downloads");
    assert_eq!(busy.header("retry-after"), Some("10"));
    drop(all);
    // Other paths keep their form.
    let other = bed.get("/v1/apps/app-z/events.csv");
    assert_eq!(other.header("content-type"), Some("application/problem+json"));
}

#[test]
fn a_report_is_an_ordinary_export() {
    let bed = bed();
    let target = format!("/api/raw-data/export/app/app-x/installs_report/v5?{MONTH}");
    let answer = bed.send_with(&format!("GET {target} HTTP/1.1"), &["TE: trailers"]);
    assert_eq!(answer.trailers[0], ("adtrail-rows".to_owned(), "2".to_owned()));
    let file = "app-x_installs-report_2026-03-01_2026-03-31_UTC.csv";
    let disposition = format!("attachment; filename=\"{file}\"");
    assert_eq!(answer.header("content-disposition"), Some(&*disposition));
    let id = answer.header("adtrail-export-id").unwrap();
    let export = bed.get(&format!("/v1/exports/{id}")).json();
    assert_eq!((&export["state"], &export["file"]), (&Value::from("complete"), &Value::from(file)));
    let head = bed.send(&format!("HEAD {target} HTTP/1.1"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    let packed = bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept-Encoding: gzip"]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
}

#[test]
fn the_preset_has_the_same_columns_in_key_order() {
    let bed = bed();
    let events = format!("/v1/apps/app-x/events.csv?{MONTH}&preset=appsflyer");
    let all = bed.get(&format!("{events}&additional_fields=oaid"));
    let rows = all.text().lines().count();
    let of_report = pull(&bed, "reinstalls", &format!("{MONTH}&additional_fields=oaid"));
    let reinstalls: Vec<_> = of_report.text().lines().skip(1).collect();
    let alone = bed.get(&format!("{events}&additional_fields=oaid&status=unattributed"));
    let mut lines: Vec<_> = alone.text().lines().skip(1).collect();
    lines.reverse();
    assert_eq!(lines, reinstalls);
    assert_eq!(all.text().lines().next(), of_report.text().lines().next());
    // One row has three lines.
    assert_eq!((rows, records(all.text()).len()), (16, 14));
    let names = cells(&bed.get(&events), "Event Name");
    assert_eq!(names[..3], ["install", "purchase", "=level, \"up\"\r\n"]);

    let excel = bed
        .get(&format!("{events}&dialect=excel&event_name=%22%3Dlevel,%20%22%22up%22%22%0d%0a%22"));
    let text = excel.text().strip_prefix('\u{feff}').unwrap();
    assert!(text.ends_with("\r\n") && text.contains("\"'=level, \"\"up\"\"\r\n\",null,"), "{text}");
    let limited = bed.get(&format!("{events}&limit=2"));
    let next = limited.header("link").unwrap().to_owned();
    assert!(next.contains("preset=appsflyer") && cells(&limited, "App ID").len() == 2, "{next}");
}

#[test]
fn a_preset_allows_only_its_own_columns() {
    let check = |format: Format, more: &[(&str, &str)], expected: &str| {
        let day = [("from", "2026-03-10"), ("to", "2026-03-10")];
        let params = day.into_iter().chain(more.iter().copied());
        assert_eq!(ExportQuery::parse(format, params).unwrap_err().to_string(), expected);
    };
    let appsflyer = ("preset", "appsflyer");
    check(Format::Csv, &[("preset", "x")], "preset: expected native, or appsflyer: \"x\"");
    check(Format::Ndjson, &[appsflyer], "preset: expected native: \"appsflyer\"");
    let fields = "fields: not allowed with preset = appsflyer, use additional_fields: \"pid\"";
    check(Format::Csv, &[appsflyer, ("fields", "pid")], fields);
    let additional = "additional_fields: not allowed with preset = native: \"oaid\"";
    check(Format::Csv, &[("additional_fields", "oaid")], additional);
    assert_eq!(field_list::fields(std::iter::empty()).len(), 81);
}
