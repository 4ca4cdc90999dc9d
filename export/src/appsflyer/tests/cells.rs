//! The cells of each report.

use super::{MONTH, additional, bed, pull, records};
use crate::tests::fixture::Bed;

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
