//! Section 3: which touches match, and within which window.

use attribution::facts::event::EventTime;

use super::support::facts::{
    A, DAY, Draft, HOUR, a_plus, activation, click, identified, impression,
};
use super::support::rules::{NARROW, WIDE, rules, rules_with};
use super::support::run::rows_in_any_order;
use super::{check_credit, check_credit_with};

const IP: &str = "203.0.113.9";

/// Checks the window of a touch that matches by device id.
#[track_caller]
fn check_id_window(touch: fn(&str, EventTime) -> Draft, window_ms: i64) {
    check_window(|time| touch("c1", time), activation("a", A), window_ms);
}

/// Checks that the touch is credited `window_ms` before the activation, and not 1 ms earlier.
#[track_caller]
fn check_window(touch: impl Fn(EventTime) -> Draft, activation: Draft, window_ms: i64) {
    check_credit([touch(a_plus(-window_ms)), activation.clone()], "c1");
    check_credit([touch(a_plus(-window_ms - 1)), activation], "organic");
}

/// Leaves IP and user agent as the only match keys.
fn with_ip_ua(draft: Draft) -> Draft {
    draft.without_ids().ip(IP).ua("agent")
}

#[test]
fn cases_1_and_2_a_click_by_id_matches_for_7_d() {
    check_id_window(click, 7 * DAY);
}

#[test]
fn cases_4_and_5_a_touch_must_precede_the_activation() {
    let off = || rules_with(|app| app.fraud.ctit_min_ms = 0);
    check_credit_with(off(), [click("c1", a_plus(-1)), activation("a", A)], "c1");
    check_credit_with(off(), [click("c1", A), activation("a", A)], "organic");
    check_credit_with(off(), [click("c1", a_plus(1)), activation("a", A)], "organic");
}

#[test]
fn case_10_an_impression_by_id_matches_for_24_h() {
    check_id_window(impression, 24 * HOUR);
}

#[test]
fn a_click_by_click_id_matches_for_7_d() {
    let by_click_id = activation("a", A).without_ids().click_id("c1");
    check_window(|time| click("c1", time).without_ids(), by_click_id, 7 * DAY);
}

#[test]
fn an_impression_by_click_id_matches_for_24_h() {
    let by_click_id = activation("a", A).without_ids().click_id("c1");
    check_window(|time| impression("c1", time).without_ids(), by_click_id, 24 * HOUR);
}

#[test]
fn a_probabilistic_click_matches_for_24_h() {
    check_window(|time| with_ip_ua(click("c1", time)), with_ip_ua(activation("a", A)), 24 * HOUR);
}

#[test]
fn a_probabilistic_impression_matches_for_6_h() {
    check_window(
        |time| with_ip_ua(impression("c1", time)),
        with_ip_ua(activation("a", A)),
        6 * HOUR,
    );
}

#[test]
fn a_touch_can_set_its_own_lookback() {
    for touch in [click, impression] {
        check_window(|time| touch("c1", time).lookback(2 * HOUR), activation("a", A), 2 * HOUR);
        check_window(|time| touch("c1", time).lookback(30 * DAY), activation("a", A), 30 * DAY);
    }
    let probabilistic = |time| with_ip_ua(impression("c1", time)).lookback(12 * HOUR);
    check_window(probabilistic, with_ip_ua(activation("a", A)), 12 * HOUR);
    check_credit([click("c1", a_plus(-HOUR)).lookback(0), activation("a", A)], "organic");
}

#[test]
fn a_lookback_is_90_d_at_most() {
    check_window(|time| click("c1", time).lookback(91 * DAY), activation("a", A), 90 * DAY);
    check_window(|time| impression("c1", time).lookback(400 * DAY), activation("a", A), 90 * DAY);
}

#[test]
fn a_probabilistic_click_ignores_its_lookback() {
    let a = || with_ip_ua(activation("a", A));
    check_window(|time| with_ip_ua(click("c1", time)).lookback(7 * DAY), a(), 24 * HOUR);
    check_window(|time| with_ip_ua(click("c1", time)).lookback(HOUR), a(), 24 * HOUR);
}

#[test]
fn the_window_of_a_campaign_overrides_that_of_its_app() {
    let a = || activation("a", A);
    check_window(|time| click("c1", time).campaign(NARROW), a(), 2 * HOUR);
    check_window(|time| click("c1", time).campaign(WIDE), a(), 30 * DAY);
    check_window(|time| click("c1", time).campaign(NARROW).lookback(3 * HOUR), a(), 3 * HOUR);
    check_window(|time| impression("c1", time).campaign(NARROW), a(), HOUR);
    check_window(|time| impression("c1", time).campaign(WIDE), a(), 48 * HOUR);
    let a = || with_ip_ua(activation("a", A));
    check_window(|time| with_ip_ua(click("c1", time)).campaign(NARROW), a(), HOUR);
    check_window(|time| with_ip_ua(click("c1", time)).campaign(WIDE), a(), 24 * HOUR);
    check_window(|time| with_ip_ua(impression("c1", time)).campaign(WIDE), a(), 48 * HOUR);
}

#[test]
fn case_51_an_unknown_campaign_has_the_apps_window() {
    check_window(|time| click("c1", time).campaign(4_000), activation("a", A), 7 * DAY);
    let facts = [click("c1", a_plus(-HOUR)).campaign(4_000), activation("a", A)];
    let rows = rows_in_any_order(&rules(), &identified(facts));
    assert!(rows[0].decision.contains("attributed install 4000"), "{}", rows[0].decision);
    let narrow = rules_with(|app| app.windows.click_ms = 1_000 * 60);
    let facts = [click("c1", a_plus(-HOUR)).campaign(4_000), activation("a", A)];
    check_credit_with(narrow, facts, "organic");
}

#[test]
fn a_touch_out_of_its_window_by_id_may_still_match_probabilistically() {
    let add_ip_ua = |draft: Draft| draft.ip(IP).ua("agent");
    let expired = add_ip_ua(click("c1", a_plus(-5 * HOUR)).lookback(HOUR));
    check_credit([expired, add_ip_ua(activation("a", A))], "c1");
}

#[test]
fn probabilistic_matching_is_off_by_default() {
    let off = rules_with(|app| app.probabilistic = false);
    check_credit_with(
        off,
        [with_ip_ua(click("c1", a_plus(-HOUR))), with_ip_ua(activation("a", A))],
        "organic",
    );
}

#[test]
fn a_probabilistic_match_needs_ip_and_user_agent_or_ip_and_the_whole_device() {
    let check = |touch: Draft, activation: Draft, expected| {
        check_credit([touch.without_ids(), activation.without_ids()], expected);
    };
    let c = || click("c1", a_plus(-HOUR)).ip(IP);
    let a = || activation("a", A).ip(IP);
    check(c().ua("u"), a().ua("u"), "c1");
    check(c().ua("u"), a().ua("U"), "organic");
    check(c(), a(), "organic");
    check(c().model("X1"), a().model("X1"), "c1");
    check(c().model("X1"), a().model("X2"), "organic");
    check(c().model("X1"), a().model("X1").os_version("15"), "organic");
    check(c().model("X1").os_version(""), a().model("X1").os_version(""), "organic");
    check(c().model(""), a().model(""), "organic");
    check(c().ua("u").model("X1"), a().ua("v").model("X1"), "c1");
    check(c().ua("u").ip("203.0.113.8"), a().ua("u"), "organic");
    check(c().ua("u").ip(""), a().ua("u").ip(""), "organic");
}

#[test]
fn case_14_a_different_idfa_prevents_a_probabilistic_match() {
    let c = |idfa: &str| with_ip_ua(click("c1", a_plus(-HOUR))).and("idfa", idfa);
    let a = || with_ip_ua(activation("a", A)).and("idfa", "2FE9A970-EFBB-29E0-0BDD-F5DBBF751AB5");
    check_credit([c("1FE9A970-EFBB-29E0-0BDD-F5DBBF751AB5"), a()], "organic");
    check_credit([c("00000000-0000-0000-0000-000000000000"), a()], "c1");
    check_credit([with_ip_ua(click("c1", a_plus(-HOUR))).and("idfv", "x"), a()], "c1");
}

#[test]
fn a_different_id_in_any_form_prevents_a_probabilistic_match() {
    let c = || with_ip_ua(click("c1", a_plus(-HOUR))).and("imei", "868049039501257");
    let a = |md5: &str| with_ip_ua(activation("a", A)).and("imei_md5", md5);
    check_credit([c(), a("83e9158a4fb54c0e1ef0b238639a23ae")], "organic");
    // One equal value of a kind is enough, even if other values of that kind differ.
    let mac = |draft: Draft, md5: &str| draft.and("mac", "aabbcc001122").and("mac_md5", md5);
    let out_of_id_window = |draft: Draft| draft.lookback(MINUTES_30);
    let c = mac(
        out_of_id_window(with_ip_ua(click("c1", a_plus(-HOUR)))),
        "83e9158a4fb54c0e1ef0b238639a23ae",
    );
    let a = mac(with_ip_ua(activation("a", A)), "8d3ebd3654fb46a2832296669cf1b536");
    check_credit([c, a], "c1");
}

const MINUTES_30: i64 = HOUR / 2;

#[test]
fn case_16_shared_addresses_do_not_match() {
    let shared = [
        "100.64.3.9",
        "100.127.255.255",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "127.0.0.1",
        "169.254.0.1",
        "::1",
        "fe80::1",
        "febf::1",
        "fc00::1",
        "fdff::1",
        "::ffff:10.0.0.1",
    ];
    let public = ["100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "2001:db8::1"];
    let check = |ip: &str, expected| {
        let at = |draft: Draft| draft.without_ids().ip(ip).ua("agent");
        check_credit([at(click("c1", a_plus(-HOUR))), at(activation("a", A))], expected);
    };
    shared.into_iter().for_each(|ip| check(ip, "organic"));
    public.into_iter().for_each(|ip| check(ip, "c1"));
}

#[test]
fn addresses_are_parsed_before_comparison() {
    let check = |of_click: &str, of_activation: &str, expected| {
        let c = click("c1", a_plus(-HOUR)).without_ids().ip(of_click).ua("agent");
        let a = activation("a", A).without_ids().ip(of_activation).ua("agent");
        check_credit([c, a], expected);
    };
    check("2001:db8::1", "2001:0DB8:0:0:0:0:0:1", "c1");
    check("::ffff:203.0.113.9", "203.0.113.9", "c1");
    check("nowhere", "nowhere", "organic");
}

#[test]
fn case_20_touches_of_another_app_are_ignored() {
    check_credit([click("c1", a_plus(-HOUR)).of_app_y(), activation("a", A)], "organic");
    check_credit(
        [click("c1", a_plus(-HOUR)).of_app_y(), activation("a", A).click_id("c1")],
        "organic",
    );
}
