//! Edges that no conformance case has: several values of one id kind, and both ends of time.

use attribution::facts::event::EventTime;

use super::explain::with_ip_ua;
use super::support::facts::{A, Draft, HOUR, a_plus, activation, click, effect, millis};
use super::support::rules::{rules, rules_with};
use super::{check, check_credit};

#[test]
fn a_different_id_in_any_form_prevents_a_probabilistic_match() {
    let c = || with_ip_ua(click("c1", a_plus(-HOUR))).and("imei", "868049039501257");
    let a = |md5: &str| with_ip_ua(activation("a", A)).and("imei_md5", md5);
    check_credit(&rules(), [c(), a("83e9158a4fb54c0e1ef0b238639a23ae")], "organic");
    // One equal value of a kind is enough, even if other values of that kind differ.
    let mac = |draft: Draft, md5: &str| draft.and("mac", "aabbcc001122").and("mac_md5", md5);
    let out_of_id_window = |draft: Draft| draft.lookback(HOUR / 2);
    let c = mac(
        out_of_id_window(with_ip_ua(click("c1", a_plus(-HOUR)))),
        "83e9158a4fb54c0e1ef0b238639a23ae",
    );
    let a = mac(with_ip_ua(activation("a", A)), "8d3ebd3654fb46a2832296669cf1b536");
    check_credit(&rules(), [c, a], "c1");
}

#[test]
fn clicks_on_the_first_possible_day_are_counted() {
    let first = (0..40).map(|n| click(&format!("x{n}"), millis(0)).campaign(1));
    let facts = first.chain([click("c1", millis(10)), activation("a", millis(20_000))]);
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 30);
    check_credit(&policy, facts, "organic");
}

#[test]
fn the_earliest_and_latest_possible_times_work() {
    let first = millis(0);
    let last = EventTime::MAX.minus(1);
    let facts = [
        click("c1", first),
        activation("a", millis(20_000)),
        effect("e", first),
        activation("y", last),
        effect("z", last),
    ];
    let rows = [
        "e: install attributed c1 (click by oaid) of a",
        "a: install attributed c1 (click by oaid)",
        "z: install organic of y",
        "y: install organic",
    ];
    check(facts, &rows);
}
