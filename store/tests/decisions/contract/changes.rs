//! What an explanation tells of a decision that took the place of another one.

use attribution::explain::explanation::ChangeCause;
use attribution::facts::event::{Family, TouchKind};

use super::explain::{there, told_after};
use super::support::facts::{
    A, DAY, Draft, HOUR, a_and, activation, click, identified, impression,
};
use super::support::rules::rules;

#[test]
fn what_came_in_is_told_with_its_time_and_whether_it_was_known() {
    let batches = [
        identified([click("c1", a_and(-DAY)), activation("a", A)]),
        identified([click("c1", a_and(-2 * DAY)), click("c2", a_and(-3 * DAY))]),
    ];
    let told = told_after(&rules(), &rules(), batches.into());
    let came_in = |id: &str, age_ms: i64, is_update| ChangeCause {
        id: Some(id.into()),
        kind: Some(TouchKind::Click),
        family: Family::Touch,
        time: a_and(-age_ms),
        is_update,
    };
    let expected = [came_in("c1", 2 * DAY, true), came_in("c2", 3 * DAY, false)];
    assert_eq!((&told.changed_by[..], told.changed_by_more), (&expected[..], false));
}

#[test]
fn a_touch_that_is_another_message_by_now_is_told_without_its_kind() {
    let click_before = |age_ms: i64| identified([click("c1", a_and(-age_ms))]);
    let first = identified([click("c1", a_and(-DAY)), activation("a", A)]);
    let batches = vec![first, click_before(8 * DAY), click_before(9 * DAY)];
    let told = told_after(&rules(), &rules(), batches);
    let kinds: Vec<_> = told.changed_by.iter().map(|one| (one.kind, one.time)).collect();
    assert_eq!(kinds, [(None, a_and(-8 * DAY))]);
}

/// What is told to have come in with the last of the batches, and whether there is more.
fn changed_by(batches: impl IntoIterator<Item = Vec<Draft>>) -> (Vec<String>, bool) {
    let batches = batches.into_iter().map(identified).collect();
    let told = told_after(&rules(), &rules(), batches);
    let ids = told.changed_by.into_iter().filter_map(|one| one.id.map(String::from));
    (ids.collect(), told.changed_by_more)
}

#[track_caller]
fn check(batches: impl IntoIterator<Item = Vec<Draft>>, ids: &[&str], has_more: bool) {
    assert_eq!(changed_by(batches), (ids.iter().map(|id| id.to_string()).collect(), has_more));
}

#[test]
fn a_touch_that_came_in_at_its_place_is_told() {
    let first = vec![there(click("c1", a_and(-HOUR))), there(activation("a", A))];
    check([first, vec![there(click("c2", a_and(-2 * HOUR)))]], &["c2"], false);
}

#[test]
fn of_many_that_came_in_together_three_are_told_and_that_there_are_more() {
    let clicks = (0..9).map(|n| click(&format!("c{n}"), a_and(-DAY + n))).collect();
    check([vec![activation("a", A)], clicks], &["c8", "c7", "c6"], true);
}

#[test]
fn of_many_activations_before_it_three_are_told_and_that_there_are_more() {
    let before = (1..5).map(|n| activation(&format!("p{n}"), a_and(-n * HOUR))).collect();
    check([vec![activation("a", A)], before], &["p1", "p2", "p3"], true);
}

#[test]
fn a_touch_that_came_in_and_does_not_reach_is_not_told() {
    let times = [a_and(-HOUR), a_and(-30 * DAY), a_and(0)];
    let touches = times.iter().zip(["i1", "i2", "i3"]).map(|(time, id)| impression(id, *time));
    check([vec![activation("a", A)], touches.collect()], &["i1"], false);
}

/// Sixteen that do not reach are looked at, and of those behind them the winner alone is known.
#[track_caller]
fn check_behind_many(device: impl Fn(Draft) -> Draft) {
    let many = (0..16).map(|n| impression(&format!("m{n}"), a_and(n - 2 * HOUR)).lookback(HOUR));
    let behind = [impression("i1", a_and(-3 * HOUR)), impression("i2", a_and(-4 * HOUR))];
    let touches = many.chain(behind).map(&device).collect();
    check([vec![device(activation("a", A))], touches], &["i1"], true);
}

#[test]
fn that_more_may_have_come_in_behind_many_is_told() {
    check_behind_many(|draft| draft);
    check_behind_many(there);
}

#[test]
fn an_activation_before_it_is_told_that_went_to_another_device_with_it() {
    let at = |ms, device: &str| {
        let [install, again] = [("p", -HOUR), ("a", 0)];
        [install, again].map(|(id, after)| activation(id, a_and(ms + after)).only("imei", device))
    };
    check([at(0, "1").into(), at(-1, "2").into()], &["a", "p"], false);
}
