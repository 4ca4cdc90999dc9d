//! Section 5: the winner and the contributors.

use adtrail_store::memory::Memory;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, identified, impression,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{LedgerUnderTest, worker_after};
use super::{check, check_credit, check_with};

const IP: &str = "203.0.113.9";

/// Adds a common IP and user agent to the device ids.
fn with_ip_ua(draft: Draft) -> Draft {
    draft.ip(IP).ua("agent")
}

/// Leaves IP and user agent as the only match keys.
fn only_ip_ua(draft: Draft) -> Draft {
    with_ip_ua(draft.without_ids())
}

#[test]
fn case_6_the_last_click_wins() {
    let facts = [click("c1", "03-05T12:00"), click("c2", "03-09T12:00"), activation("a", A)];
    check(facts, &["a: install attributed c2 (click by oaid) + 1 (click by oaid)"]);
}

#[test]
fn case_7_at_equal_times_a_click_id_wins_over_a_device_id() {
    let facts = [
        click("c1", "03-09T12:00").without_ids(),
        click("c2", "03-09T12:00"),
        activation("a", A).click_id("c1"),
    ];
    check(facts, &["a: install attributed c1 (click by click_id) + 2 (click by oaid)"]);
}

#[test]
fn a_later_click_by_device_wins_over_an_earlier_one_by_click_id() {
    let facts = [
        click("c1", "03-09T12:00").without_ids(),
        click("c2", "03-09T12:00:00.001"),
        activation("a", A).click_id("c1"),
    ];
    check_credit(facts, "c2");
}

#[test]
fn case_8_at_equal_times_the_greater_click_id_wins() {
    let same = |id| click(id, "03-09T12:00");
    check_credit([same("a"), same("b"), activation("a", A)], "b");
    check_credit([same("b"), same("B"), same("aa"), activation("a", A)], "b");
    check_credit([same("10"), same("9"), activation("a", A)], "9");
}

#[test]
fn case_9_a_click_wins_over_a_later_impression() {
    let facts = [click("c1", "03-04T12:00"), impression("i2", "03-10T11:55"), activation("a", A)];
    check(facts, &["a: install attributed c1 (click by oaid) + 2 (impression by oaid)"]);
}

#[test]
fn case_10_an_impression_wins_if_it_is_the_only_touch() {
    let facts = [impression("i1", "03-09T12:00:00.000"), activation("a", A)];
    check(facts, &["a: install attributed i1 (impression by oaid)"]);
}

#[test]
fn case_12_a_click_by_id_wins_over_a_later_probabilistic_one() {
    let facts = [
        only_ip_ua(click("c1", "03-10T11:00")),
        click("c2", "03-04T12:00"),
        with_ip_ua(activation("a", A)),
    ];
    check(facts, &["a: install attributed c2 (click by oaid) + 1 (click by ip_ua)"]);
}

#[test]
fn case_13_a_probabilistic_click_wins_over_a_later_impression_by_id() {
    let facts = [
        only_ip_ua(click("c1", "03-10T11:00")),
        impression("i2", "03-10T11:30"),
        with_ip_ua(activation("a", A)),
    ];
    check(facts, &["a: install attributed c1 (click by ip_ua) + 2 (impression by oaid)"]);
}

#[test]
fn an_impression_by_id_wins_over_a_later_probabilistic_one() {
    let facts = [
        impression("i1", "03-10T08:00"),
        only_ip_ua(impression("i2", "03-10T11:30")),
        with_ip_ua(activation("a", A)),
    ];
    check(facts, &["a: install attributed i1 (impression by oaid) + 2 (impression by ip_ua)"]);
}

/// At equal times the better key wins, even against a greater click id.
#[test]
fn match_keys_rank_in_the_order_of_the_contract() {
    let kinds = ["mac", "android_id", "imei", "idfv", "caid", "oaid"];
    for (worse, better) in kinds.iter().zip(&kinds[1..]) {
        let facts = [
            click("c2", "03-09T12:00").only(worse, "value-1"),
            click("c1", "03-09T12:00").only(better, "value-2"),
            activation("a", A).only(worse, "value-1").and(better, "value-2"),
        ];
        check_credit(facts, "c1");
    }
}

#[test]
fn oaid_gaid_and_idfa_rank_equally() {
    for (kind, other) in [("oaid", "gaid"), ("gaid", "idfa"), ("oaid", "idfa"), ("idfa", "oaid")] {
        let facts = [
            click("c1", "03-09T12:00").only(kind, "value-1"),
            click("c2", "03-09T12:00").only(other, "value-2"),
            activation("a", A).only(kind, "value-1").and(other, "value-2"),
        ];
        check_credit(facts, "c2");
    }
}

#[test]
fn the_row_has_the_best_key_and_the_first_of_equals() {
    let all = |draft: Draft| {
        draft.only("idfa", "i").and("gaid", "g").and("oaid", "o").and("mac", "a1").and("caid", "c")
    };
    let facts = [all(click("c1", "03-09T12:00")), all(activation("a", A))];
    check(facts, &["a: install attributed c1 (click by oaid)"]);
    let two = |draft: Draft| draft.only("idfa", "i").and("gaid", "g").and("mac", "a1");
    let facts = [two(click("c1", "03-09T12:00")), two(activation("a", A))];
    check(facts, &["a: install attributed c1 (click by gaid)"]);
}

#[test]
fn a_match_by_device_ranks_above_one_by_user_agent() {
    let by_ua = |draft: Draft| draft.without_ids().ip(IP).ua("agent");
    let by_model = |draft: Draft| draft.without_ids().ip(IP).model("X1");
    let facts = [
        by_ua(click("c2", a_plus(-HOUR))),
        by_model(click("c1", a_plus(-HOUR))),
        by_ua(by_model(activation("a", A))),
    ];
    check(facts, &["a: install attributed c1 (click by ip_device) + 2 (click by ip_ua)"]);
}

#[test]
fn contributors_are_the_next_three_of_any_tier_newest_first() {
    let facts = [
        click("c1", a_plus(-5 * DAY)),
        impression("i2", a_plus(-10 * MINUTE)),
        only_ip_ua(click("c3", a_plus(-2 * HOUR))),
        click("c4", a_plus(-3 * DAY)),
        click("c5", a_plus(-4 * DAY)),
        with_ip_ua(activation("a", A)),
    ];
    let row = "a: install attributed c4 (click by oaid) + 2 (impression by oaid) \
               + 3 (click by ip_ua) + 5 (click by oaid)";
    check(facts, &[row]);
}

#[test]
fn contributors_at_equal_times_are_ordered_by_greater_click_id() {
    let same = |id| click(id, a_plus(-DAY));
    let facts = [
        same("x1"),
        same("x3"),
        same("x2"),
        same("x4"),
        click("w5", a_plus(-HOUR)),
        activation("a", A),
    ];
    let row = "a: install attributed w5 (click by oaid) + 4 (click by oaid) \
               + 3 (click by oaid) + 2 (click by oaid)";
    check(facts, &[row]);
}

#[test]
fn a_reinstall_without_a_retargeting_touch_stays_unattributed() {
    let facts = [activation("b", a_plus(-DAY)), click("c1", a_plus(-HOUR)), activation("a", A)];
    check(facts, &["b: install organic", "a: reinstall unattributed"]);
}

#[test]
fn a_winner_is_found_behind_many_pages() {
    // Hundreds of newer touches are worse or rejected.
    let newer = (0..300).flat_map(|n| {
        let time = a_plus(-9 * SECOND + n);
        [click(&format!("r{n}"), time).campaign(1), impression(&format!("s{n}"), time).campaign(1)]
    });
    let facts: Vec<_> = newer.chain([click("c2", a_plus(-DAY)), activation("a", A)]).collect();
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let worker = worker_after(Memory::default(), &policy, vec![identified(facts)]);
    assert_eq!(worker.ledger().row_texts()[0].short, "a: install attributed c2 (click by oaid)");
}

#[test]
fn ties_are_resolved_over_many_pages() {
    let same = (0..300).map(|n| click(&format!("t{n:03}"), a_plus(-HOUR)).campaign(1));
    let facts: Vec<_> = same.chain([activation("a", A)]).collect();
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    for facts in [facts.clone(), facts.into_iter().rev().collect()] {
        let worker = worker_after(Memory::default(), &policy, vec![identified(facts)]);
        let rows = worker.ledger().row_texts();
        assert!(rows[0].short.starts_with("a: install attributed t299 "), "{}", rows[0].short);
    }
}

#[test]
fn without_fraud_rules_the_order_is_the_same() {
    let facts = [click("c1", a_plus(-DAY)), click("c2", a_plus(-1)), activation("a", A)];
    let plain = rules_with(|app| app.fraud = Default::default());
    let row = "a: install attributed c2 (click by oaid) + 1 (click by oaid)";
    check_with(plain, facts.clone(), &[row]);
    check_with(rules(), facts, &["a: install attributed c1 (click by oaid)"]);
}
