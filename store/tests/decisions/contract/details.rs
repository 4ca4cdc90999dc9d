//! The cells of a row about its touch and its activation.

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
