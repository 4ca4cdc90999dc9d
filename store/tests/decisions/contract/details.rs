//! The cells of a row about its touches and its activation.

use super::support::facts::{
    A, DAY, Draft, HOUR, When as _, a_plus, activation, click, effect, identified, impression,
};
use super::support::rules::rules;
use super::support::run::rows_in_any_order;

/// Checks the cells about touch and activation in the rows of these events.
#[track_caller]
fn check_details(facts: impl IntoIterator<Item = Draft>, expected: &[(&str, &str)]) {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    for (id, details) in expected {
        let prefix = format!("{id}: ");
        let row =
            rows.iter().find(|row| row.short.starts_with(&prefix)).expect("the event has a row");
        assert_eq!(row.details, *details, "{}", row.short);
    }
}

#[test]
fn rows_have_details_of_touch_and_activation() {
    let begun = A.time().millis() - 5_000;
    let install = activation("a", A).install_begin(a_plus(-5_000)).prop("store", "huawei");
    let touch = || click("c1", a_plus(-HOUR)).prop("sub1", "x").prop("sub5", "y, z");
    let effect = || effect("e", a_plus(DAY));
    let details = format!("ua|604800000|s-1|x||||y, z|{begun}|huawei|");
    let facts = [touch().site("s-1"), install.clone(), effect()];
    check_details(facts, &[("a", &details), ("e", &details)]);
    // Next: a touch with its own lookback, an impression, and no touch.
    let retargeting = [touch().retargeting().lookback(2 * DAY), install.clone(), effect()];
    let details = format!("retargeting|172800000||x||||y, z|{begun}|huawei|");
    check_details(retargeting, &[("a", &details), ("e", &details)]);
    let viewed = [impression("i1", a_plus(-HOUR)), activation("a", A), effect()];
    check_details(viewed, &[("a", "ua|86400000|||||||||"), ("e", "ua|86400000|||||||||")]);
    check_details([install, effect()], &[("e", &format!("||||||||{begun}|huawei|"))]);
    check_details([effect()], &[("e", "||||||||||")]);
    // The message with the least content is the fact.
    let twice = [touch().site("b"), activation("a", A), touch().site("a"), effect()];
    check_details(twice, &[("e", "ua|604800000|a|x||||y, z|||")]);
}

#[test]
fn an_effect_names_the_activation_whose_credit_it_inherits() {
    let facts = [
        click("c1", a_plus(-HOUR)).retargeting(),
        activation("a", A),
        activation("again", a_plus(30 * DAY)),
        effect("e", a_plus(31 * DAY)),
    ];
    let of_a = "retargeting|604800000|||||||||a";
    let expected = [("a", "retargeting|604800000|||||||||"), ("again", "||||||||||"), ("e", of_a)];
    check_details(facts.clone(), &expected);
    let credited = click("c2", a_plus(29 * DAY)).retargeting();
    let of_again = "retargeting|604800000|||||||||";
    check_details(facts.into_iter().chain([credited]), &[("again", of_again), ("e", of_again)]);
}

/// Checks what the rows of these events contain of the ads of their touch and its contributors.
#[track_caller]
fn check_ads(facts: impl IntoIterator<Item = Draft>, expected: &[(&str, &[&str])]) {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    for (id, ads) in expected {
        let prefix = format!("{id}: ");
        let row =
            rows.iter().find(|row| row.short.starts_with(&prefix)).expect("the event has a row");
        assert_eq!(row.ads, *ads, "{}", row.short);
    }
}

#[test]
fn rows_have_the_ads_of_the_touch_and_the_contributors() {
    let facts = [
        click("c1", a_plus(-3 * HOUR)).prop("callback", "t1").prop("adset_name", "a \"b\", c"),
        click("c2", a_plus(-2 * HOUR)).prop("callback", "__CALLBACK_PARAM__").prop("sub1", "x"),
        impression("i3", a_plus(-2 * HOUR + 1)).prop("creative_id", "3"),
        click("c4", a_plus(-HOUR))
            .prop("callback", "t4")
            .prop("ad_id", "{aid}")
            .prop("ad_name", "4"),
        activation("a", A),
        effect("e", a_plus(DAY)),
    ];
    let of_a = [
        " {callback=t4 ad_name=4}",
        " {creative_id=3}",
        "",
        " {callback=t1 adset_name=a \"b\", c}",
    ];
    // An effect has no tokens and nothing of the contributors: its activation has them.
    check_ads(facts, &[("a", &of_a), ("e", &[" {ad_name=4}", "", "", ""])]);
    check_ads([activation("a", A)], &[("a", &[""])]);
}

#[test]
fn a_callback_token_of_any_length_is_kept_unchanged() {
    // The first is as long as a network's, the second the longest that an event can have.
    for len in [4_096, 8_192] {
        let token = format!("{}+/%==", "t".repeat(len - 5));
        let touches = [3, 2, 1, 4].map(|age: i64| {
            click(&format!("c{age}"), a_plus(-age * HOUR)).prop("callback", &token)
        });
        let kept = format!(" {{callback={token}}}");
        let facts = touches.into_iter().chain([activation("a", A)]);
        check_ads(facts, &[("a", &[&*kept; 4])]);
    }
}

/// The message with the least content is the fact, whatever arrives first.
#[test]
fn of_two_messages_that_differ_in_their_token_one_is_kept() {
    let c1 = |token| click("c1", a_plus(-HOUR)).prop("callback", token);
    let facts = [c1("t2"), c1("t1"), click("c2", a_plus(-HOUR / 2)), activation("a", A)];
    check_ads(facts, &[("a", &["", " {callback=t1}"])]);
    check_ads([c1("t2"), activation("a", A), c1("t1")], &[("a", &[" {callback=t1}"])]);
}

/// The second activation is a reinstall without a touch of its own, so its effects carry the credit of the install.
#[test]
fn effects_of_a_reinstall_have_no_token_of_the_install() {
    let facts = [
        click("c1", a_plus(-HOUR)).prop("callback", "t").prop("ad_id", "1"),
        activation("a", A),
        activation("again", a_plus(30 * DAY)),
        effect("e", a_plus(31 * DAY)),
    ];
    check_ads(
        facts,
        &[("a", &[" {callback=t ad_id=1}"]), ("again", &[""]), ("e", &[" {ad_id=1}"])],
    );
}
