//! What an explanation tells of a decision that took the place of another one.

use attribution::event::{Family, TouchKind};
use attribution::explain::CameIn;

use super::explain::{there, told_after};
use super::support::facts::{A, DAY, HOUR, a_and, activation, click, identified};
use super::support::rules::rules;

#[test]
fn what_came_in_is_told_with_its_time_and_whether_it_was_known() {
    let batches = [
        identified([click("c1", a_and(-DAY)), activation("a", A)]),
        identified([click("c1", a_and(-2 * DAY)), click("c2", a_and(-3 * DAY))]),
    ];
    let told = told_after(&rules(), &rules(), batches.into());
    let came_in = |id: &str, age_ms: i64, again| CameIn {
        id: Some(id.into()),
        kind: Some(TouchKind::Click),
        family: Family::Touch,
        time: a_and(-age_ms),
        again,
    };
    let expected = [came_in("c1", 2 * DAY, true), came_in("c2", 3 * DAY, false)];
    assert_eq!((&told.changed_by[..], told.changed_by_more), (&expected[..], false));
}

#[test]
fn a_touch_that_came_in_at_its_place_is_told() {
    let first = [there(click("c1", a_and(-HOUR))), there(activation("a", A))];
    let batches = [identified(first), identified([there(click("c2", a_and(-2 * HOUR)))])];
    let told = told_after(&rules(), &rules(), batches.into());
    let ids: Vec<_> = told.changed_by.iter().filter_map(|one| one.id.as_deref()).collect();
    assert_eq!(ids, ["c2"]);
}

#[test]
fn of_many_that_came_in_together_three_are_told_and_that_there_are_more() {
    let clicks = (0..9).map(|n| click(&format!("c{n}"), a_and(-DAY + n)));
    let batches = [identified([activation("a", A)]), identified(clicks)];
    let told = told_after(&rules(), &rules(), batches.into());
    let ids: Vec<_> = told.changed_by.iter().filter_map(|one| one.id.as_deref()).collect();
    assert_eq!((&ids[..], told.changed_by_more), (&["c8", "c7", "c6"][..], true));
}
