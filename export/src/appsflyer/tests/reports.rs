//! Which rows and columns are in a report, and in which order.

use attribution::facts::event::Fact;

use super::{MONTH, additional, bed, bed_of, cells, pull, records};
use crate::appsflyer::column::{Cell, columns};
use crate::appsflyer::report::Kind;
use crate::tests::fixture::{DAY, activation};

/// `golden.csv` has all reports of the month in Shanghai time, with every additional field. Each row is in one report.
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
fn additional_columns_follow_the_fixed_ones() {
    let fixed = include_str!("../headings.txt").trim_end();
    let (bed, range) = (bed(), "from=2020-01-01&to=2020-01-01");
    assert_eq!(pull(&bed, "reinstalls", range).text(), format!("{fixed}\n"));
    let additional =
        "additional_fields=Event%20X,%22b,%22%22%22%22%22,,is_lat&additional_fields=is_lat";
    let answer = pull(&bed, "installs_report", &format!("{range}&{additional}"));
    assert_eq!(answer.text(), format!("{fixed},Event X,\"b,\"\"\"\"\",Is LAT,Is LAT\n"));
    let twice = format!("{MONTH}&additional_fields=match_type,match_type");
    for line in pull(&bed, "installs_report", &twice).text().lines().skip(1) {
        assert!(line.ends_with(',') && !line.ends_with(",,"), "the second is empty: {line}");
    }
    let known = columns().filter(|(_, cell)| *cell != Cell::Unknown);
    assert_eq!(known.count(), 53, "every known column has a heading");
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
    for zone in ["Asia/Shanghai", "%2B08:00", "+08:00"] {
        check(&format!("from=2026-03-10%2008:00&to=2026-03-10&timezone={zone}"), &there);
    }
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
