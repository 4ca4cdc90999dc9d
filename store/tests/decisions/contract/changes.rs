//! The facts that an explanation names as causes of a changed decision.

use attribution::explain::explanation::ChangeCause;
use attribution::facts::event::{Family, TouchKind};

use super::explain::{explain_after, with_ip_ua};
use super::support::facts::{
    A, DAY, Draft, HOUR, a_plus, activation, click, identified, impression,
};
use super::support::rules::{NARROW, rules};

#[test]
fn causes_are_listed_with_time_and_whether_they_are_updates() {
    let batches = [
        identified([click("c1", a_plus(-DAY)), activation("a", A)]),
        identified([click("c1", a_plus(-2 * DAY)), click("c2", a_plus(-3 * DAY))]),
    ];
    let explanation = explain_after(&rules(), &rules(), batches.into());
    let cause = |id: &str, age_ms: i64, is_update| ChangeCause {
        id: Some(id.into()),
        kind: Some(TouchKind::Click),
        family: Family::Touch,
        time: a_plus(-age_ms),
        is_update,
    };
    let expected = [cause("c1", 2 * DAY, true), cause("c2", 3 * DAY, false)];
    assert_eq!((&explanation.changed_by[..], explanation.changed_by_more), (&expected[..], false));
}

#[test]
fn a_touch_replaced_by_another_message_is_listed_without_kind() {
    let click_before = |age_ms: i64| identified([click("c1", a_plus(-age_ms))]);
    let first = identified([click("c1", a_plus(-DAY)), activation("a", A)]);
    let batches = vec![first, click_before(8 * DAY), click_before(9 * DAY)];
    let explanation = explain_after(&rules(), &rules(), batches);
    let kinds: Vec<_> =
        explanation.changed_by.iter().map(|cause| (cause.kind, cause.time)).collect();
    assert_eq!(kinds, [(None, a_plus(-8 * DAY))]);
}

/// Returns the ids of the listed causes in the last batch, and whether there may be more causes.
fn changed_by(batches: impl IntoIterator<Item = Vec<Draft>>) -> (Vec<String>, bool) {
    let batches = batches.into_iter().map(identified).collect();
    let explanation = explain_after(&rules(), &rules(), batches);
    let ids = explanation.changed_by.into_iter().filter_map(|cause| cause.id.map(String::from));
    (ids.collect(), explanation.changed_by_more)
}

#[track_caller]
fn check(batches: impl IntoIterator<Item = Vec<Draft>>, ids: &[&str], has_more: bool) {
    assert_eq!(changed_by(batches), (ids.iter().map(|id| id.to_string()).collect(), has_more));
}

#[test]
fn a_touch_that_matches_probabilistically_is_listed() {
    let first = vec![with_ip_ua(click("c1", a_plus(-HOUR))), with_ip_ua(activation("a", A))];
    check([first, vec![with_ip_ua(click("c2", a_plus(-2 * HOUR)))]], &["c2"], false);
}

#[test]
fn at_most_three_touches_of_a_batch_are_listed() {
    let clicks = (0..9).map(|n| click(&format!("c{n}"), a_plus(-DAY + n))).collect();
    check([vec![activation("a", A)], clicks], &["c8", "c7", "c6"], true);
}

#[test]
fn at_most_three_earlier_activations_are_listed() {
    let before = (1..5).map(|n| activation(&format!("p{n}"), a_plus(-n * HOUR))).collect();
    check([vec![activation("a", A)], before], &["p1", "p2", "p3"], true);
}

#[test]
fn touches_out_of_their_windows_are_not_listed() {
    let times = [a_plus(-HOUR), a_plus(-30 * DAY), a_plus(0)];
    let touches = times.iter().zip(["i1", "i2", "i3"]).map(|(time, id)| impression(id, *time));
    check([vec![activation("a", A)], touches.collect()], &["i1"], false);
}

/// Checks the causes behind many touches: at most 16 touches outside their windows are examined; among the older ones,
/// only the winner is known.
#[track_caller]
fn check_behind_many(device: impl Fn(Draft) -> Draft) {
    let many = (0..16).map(|n| impression(&format!("m{n}"), a_plus(n - 2 * HOUR)).campaign(NARROW));
    let behind = [impression("i1", a_plus(-3 * HOUR)), impression("i2", a_plus(-4 * HOUR))];
    let touches = many.chain(behind).map(&device).collect();
    check([vec![device(activation("a", A))], touches], &["i1"], true);
}

#[test]
fn unexamined_older_touches_count_as_possible_causes() {
    check_behind_many(|draft| draft);
    check_behind_many(with_ip_ua);
}

#[test]
fn an_earlier_activation_that_also_moved_to_another_device_is_listed() {
    let at = |ms, device: &str| {
        let [install, again] = [("p", -HOUR), ("a", 0)];
        [install, again].map(|(id, after)| activation(id, a_plus(ms + after)).only("imei", device))
    };
    check([at(0, "1").into(), at(-1, "2").into()], &["a", "p"], false);
}
