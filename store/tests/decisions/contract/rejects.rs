//! Section 4: the fraud rules, of which the first that applies counts.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::facts::device_ids;
use attribution::rules::policy::{AppPolicy, IpRange, Policy};

use super::support::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified,
    impression, millis,
};
use super::support::rules::{OTHER_CHANNEL, rules_with};
use super::support::run::{LedgerUnderTest, worker_after};
use super::{check, check_credit, check_credit_with, check_with};

const IP: &str = "203.0.113.9";

#[test]
fn case_21_a_click_too_shortly_before_the_activation_is_rejected() {
    check_credit(
        [click("c1", "03-08T00:00"), click("c2", a_plus(-3 * SECOND)), activation("a", A)],
        "c1",
    );
}

#[test]
fn a_touch_at_exactly_ctit_min_is_accepted() {
    check_credit([click("c1", a_plus(-10 * SECOND)), activation("a", A)], "c1");
    check_credit([click("c1", a_plus(-10 * SECOND + 1)), activation("a", A)], "organic");
    check_credit([impression("c1", a_plus(-10 * SECOND + 1)), activation("a", A)], "organic");
}

#[test]
fn case_23_a_click_after_the_install_began_is_injected() {
    let a = || activation("a", A).install_begin(a_plus(-MINUTE));
    check_credit([click("c1", "03-09T12:00"), click("c2", a_plus(-30 * SECOND)), a()], "c1");
    check_credit([click("c2", a_plus(-MINUTE)), a()], "c2");
    check_credit([click("c2", a_plus(-MINUTE + 1)), a()], "organic");
    check_credit([impression("c2", a_plus(-MINUTE + 1)), a()], "organic");
}

#[test]
fn a_rejected_touch_is_not_a_contributor() {
    let facts = [click("c1", "03-08T00:00"), click("c2", a_plus(-3 * SECOND)), activation("a", A)];
    check(facts, &["a: install attributed c1 (click by oaid)"]);
}

fn clicks_max(max: u32) -> Arc<Policy> {
    rules_with(|app| app.fraud.clicks_per_device_max = max)
}

/// Returns clicks at these hours before A.
fn clicks(hours: &[i64]) -> Vec<Draft> {
    hours
        .iter()
        .map(|hours| click(&format!("h{hours}"), a_plus(-hours * HOUR)).campaign(1))
        .collect()
}

#[test]
fn more_clicks_than_the_limit_within_24_h_are_too_many() {
    let facts = |hours: &[i64]| {
        let facts = clicks(hours).into_iter().chain([activation("a", A)]);
        facts.collect::<Vec<_>>()
    };
    // h1 is the third click within 24 h; with limit 2, the click before it wins.
    check_credit_with(clicks_max(3), facts(&[3, 2, 1]), "h1");
    check_credit_with(clicks_max(2), facts(&[3, 2, 1]), "h2");
    check_credit_with(clicks_max(1), facts(&[3, 2, 1]), "h3");
    check_credit_with(clicks_max(0), facts(&[3, 2, 1]), "h1");
    // The start of the 24 h before a click is excluded.
    check_credit_with(clicks_max(1), facts(&[25, 1]), "h1");
    check_credit_with(clicks_max(1), facts(&[24, 1]), "h24");
}

#[test]
fn clicks_before_the_window_count_too() {
    let facts = || {
        let old = click("old", a_plus(-7 * DAY - 1)).campaign(1);
        [old, click("c1", a_plus(-7 * DAY)), activation("a", A)]
    };
    check_credit_with(clicks_max(2), facts(), "c1");
    check_credit_with(clicks_max(1), facts(), "organic");
}

#[test]
fn clicks_of_another_channel_do_not_count() {
    let other = click("other", a_plus(-2 * HOUR)).campaign(OTHER_CHANNEL);
    check_credit_with(clicks_max(1), [other, click("c1", a_plus(-HOUR)), activation("a", A)], "c1");
    let unknown = |id, ms| click(id, a_plus(ms)).campaign(4_000);
    let facts = [unknown("u", -2 * HOUR), unknown("v", -HOUR), activation("a", A)];
    check_credit_with(clicks_max(1), facts, "u");
}

#[test]
fn clicks_that_match_only_probabilistically_do_not_count() {
    let with_ip_ua = |draft: Draft| draft.ip(IP).ua("agent");
    let probabilistic =
        with_ip_ua(click("probabilistic", a_plus(-2 * HOUR)).without_ids()).campaign(1);
    let c1 = with_ip_ua(click("c1", a_plus(-HOUR)));
    let facts = [probabilistic, c1, with_ip_ua(activation("a", A))];
    check_credit_with(clicks_max(1), facts, "c1");
}

#[test]
fn impressions_are_neither_counted_nor_rejected() {
    let facts = || {
        let (i1, i2) = (impression("i1", a_plus(-3 * HOUR)), impression("i2", a_plus(-2 * HOUR)));
        vec![i1, i2, activation("a", A)]
    };
    check_credit_with(clicks_max(1), facts(), "i2");
    check_credit_with(clicks_max(1), facts().into_iter().chain([click("c1", a_plus(-HOUR))]), "c1");
}

#[test]
fn a_click_by_click_id_counts() {
    // The click c2 has no device id; the activation has its click id.
    let facts = [
        click("c1", a_plus(-2 * HOUR)),
        click("c2", a_plus(-HOUR)).without_ids(),
        activation("a", A).click_id("c2"),
    ];
    check_credit_with(clicks_max(2), facts.clone(), "c2");
    check_credit_with(clicks_max(1), facts, "c1");
}

#[test]
fn many_pages_of_clicks_are_counted() {
    let facts = |n: i64| {
        let click = |n| click(&format!("x{n:03}"), a_plus(-HOUR + n)).campaign(1);
        (0..n).map(click).chain([activation("a", A)]).collect::<Vec<_>>()
    };
    let winner = |max: u32, n, expected: &str| {
        let policy = clicks_max(max);
        let worker = worker_after(Memory::default(), &policy, vec![identified(facts(n))]);
        let rows = worker.ledger().row_texts();
        assert!(rows[0].short.contains(expected), "{}", rows[0].short);
    };
    winner(300, 300, "x299");
    winner(299, 300, "x298");
    winner(20, 600, "x019");
}

#[test]
fn clicks_on_the_first_possible_day_are_counted() {
    let first = (0..40).map(|n| click(&format!("x{n}"), millis(0)).campaign(1));
    let facts = first.chain([click("c1", millis(10)), activation("a", millis(20_000))]);
    check_credit_with(clicks_max(30), facts.collect::<Vec<_>>(), "organic");
}

fn range(ip: &str, prefix_bits: u8) -> IpRange {
    IpRange { network: ip.parse().expect("a valid IP address"), prefix_bits }
}

fn block_device(app: &mut AppPolicy, setting: &str) {
    let ids = device_ids::parse_setting(setting).expect("a valid device id");
    app.fraud.block_devices.extend(ids.iter().cloned());
}

#[test]
fn block_listed_touches_are_rejected() {
    let by_ip = || rules_with(|app| app.fraud.block_ips = vec![range("203.0.113.0", 24)]);
    let by_site = || rules_with(|app| app.fraud.block_sites = vec!["bad".into()]);
    let c1 = || click("c1", a_plus(-2 * HOUR));
    let c2 = || click("c2", a_plus(-HOUR));
    let check = |policy, c2: Draft, expected| {
        check_credit_with(policy, [c1(), c2, activation("a", A)], expected);
    };
    check(by_ip(), c2().ip(IP), "c1");
    check(by_ip(), c2().ip("203.0.114.9"), "c2");
    check(by_site(), c2().site("bad"), "c1");
    check(by_site(), c2().site("good"), "c2");
    let by_device = rules_with(|app| block_device(app, "imei:868049039501257"));
    check(by_device, c2().and("imei_md5", "8d3ebd3654fb46a2832296669cf1b536"), "c1");
}

#[test]
fn allow_listed_touches_are_always_accepted() {
    let rules = |change: fn(&mut AppPolicy)| {
        rules_with(|app| {
            app.fraud.block_ips = vec![range(IP, 32)];
            app.fraud.clicks_per_device_max = 1;
            change(app);
        })
    };
    let facts = || {
        let bad = click("c2", a_plus(-SECOND)).ip(IP).site("s");
        let a = activation("a", A).install_begin(a_plus(-MINUTE));
        [click("c1", a_plus(-2 * HOUR)).campaign(OTHER_CHANNEL), bad, a]
    };
    check_credit_with(rules(|_| {}), facts(), "c1");
    check_credit_with(rules(|app| app.fraud.allow_sites = vec!["s".into()]), facts(), "c2");
    check_credit_with(rules(|app| app.fraud.allow_channels = vec!["ads".into()]), facts(), "c2");
    check_credit_with(rules(|app| app.fraud.allow_channels = vec!["other".into()]), facts(), "c1");
}

#[test]
fn a_block_listed_activation_is_rejected_with_its_effects() {
    let by_ip = || rules_with(|app| app.fraud.block_ips = vec![range(IP, 32)]);
    let facts = [
        click("c1", a_plus(-HOUR)),
        activation("a", A).ip(IP),
        effect("e", a_plus(1)),
        activation("b", a_plus(DAY)).ip(IP),
    ];
    let rows = [
        "a: install rejected because blocked",
        "e: install rejected of a because blocked",
        "b: reinstall rejected because blocked",
    ];
    check_with(by_ip(), facts, &rows);
    let by_device = rules_with(|app| block_device(app, &format!("oaid:{D}")));
    check_with(by_device, [activation("a", A)], &["a: install rejected because blocked"]);
}

#[test]
fn an_effects_own_address_rejects_nothing() {
    let by_ip = rules_with(|app| app.fraud.block_ips = vec![range(IP, 32)]);
    let facts = [activation("a", A), effect("e", a_plus(1)).ip(IP)];
    check_with(by_ip, facts, &["a: install organic", "e: install organic of a"]);
}
