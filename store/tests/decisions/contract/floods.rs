//! Decisions with more touches than a worker keeps in memory: it must keep the relevant ones.

use adtrail_store::memory::Memory;
use attribution::rules::policy::AppPolicy;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, identified, impression,
};
use super::support::rules::{OTHER_CHANNEL, rules_with};
use super::support::run::{LedgerUnderTest, worker_after};

const TOUCHES: i64 = 2_000;

/// Gives the device two ids, which have separate index entries.
fn device(draft: Draft) -> Draft {
    by_oaid(by_imei(draft))
}

fn by_oaid(draft: Draft) -> Draft {
    draft.and("oaid", "flooded")
}

fn by_imei(draft: Draft) -> Draft {
    draft.and("imei", "86")
}

#[track_caller]
fn check(
    change: impl FnOnce(&mut AppPolicy),
    facts: impl IntoIterator<Item = Draft>,
    expected: &str,
) {
    let a = device(activation("a", A).without_ids());
    let facts = identified(facts.into_iter().chain([a]));
    let worker = worker_after(Memory::default(), &rules_with(change), vec![facts]);
    let rows = worker.ledger().row_texts();
    assert_eq!(rows.iter().map(|row| &*row.short).collect::<Vec<_>>(), [expected]);
}

/// Returns clicks of the last six days, indexed by the oaid.
fn flood(change: impl Fn(Draft) -> Draft) -> Vec<Draft> {
    let click =
        |number| click(&format!("f{number}"), a_plus(-HOUR - number * 4 * MINUTE)).campaign(7);
    (0..TOUCHES).map(|number| change(by_oaid(click(number).without_ids()))).collect()
}

#[test]
fn a_click_counts_toward_the_limit_of_one_found_later_by_another_id() {
    let other = |id: &str, ms| click(id, a_plus(ms)).without_ids().campaign(OTHER_CHANNEL);
    let counting = by_imei(other("o1", -5 * DAY - HOUR).site("bad"));
    let facts = [flood(|click| click), vec![by_oaid(other("o2", -5 * DAY)), counting]].concat();
    let policy = |max| {
        move |app: &mut AppPolicy| {
            app.fraud.block_sites = vec!["bad".into()];
            app.fraud.clicks_per_device_max = max;
        }
    };
    check(policy(1), facts.clone(), "a: install attributed f1999 (click by oaid)");
    let expected =
        "a: install attributed o2 (click by oaid) + 7 (click by oaid) + 7 (click by oaid)";
    check(policy(2), facts, expected);
}

#[test]
fn a_click_counts_toward_the_limit_of_a_simultaneous_one_while_older_ones_are_read() {
    let other = |id: &str, ms| by_oaid(click(id, a_plus(ms)).without_ids()).campaign(OTHER_CHANNEL);
    let at = -3 * DAY - 12 * HOUR;
    let counting = [other("o1", at - 20 * HOUR), other("o2", at)].map(|click| click.site("bad"));
    let facts = [flood(|click| click), counting.into(), vec![other("o3", at)]].concat();
    let limited = |app: &mut AppPolicy| {
        app.fraud.block_sites = vec!["bad".into()];
        app.fraud.clicks_per_device_max = 2;
    };
    check(limited, facts, "a: install attributed f1998 (click by oaid) + 7 (click by oaid)");
}

#[test]
fn an_old_winner_is_kept_while_a_flood_of_rejected_clicks_is_read() {
    let blocked = |app: &mut AppPolicy| {
        app.fraud.clicks_per_device_max = 0;
        app.fraud.block_sites = vec!["bad".into()];
    };
    let impressions = (0..10).map(|number| {
        by_imei(impression(&format!("i{number}"), a_plus(-MINUTE - number * SECOND)).without_ids())
    });
    let old = by_imei(click("old", a_plus(-6 * DAY)).without_ids());
    let facts = flood(|click| click.site("bad")).into_iter().chain(impressions).chain([old]);
    let expected = "a: install attributed old (click by imei) + 0 (impression by imei) \
                    + 1 (impression by imei) + 2 (impression by imei)";
    check(blocked, facts, expected);
}

/// Touches with every subset of seven id kinds: none contradicts an activation without ids, so all are searched.
#[test]
fn the_newest_touch_wins_among_many_id_kinds_at_one_address() {
    const KINDS: [&str; 7] = ["oaid", "gaid", "idfa", "idfv", "caid", "imei", "android_id"];
    let at_ip_ua = |draft: Draft| draft.ip("203.0.113.9").ua("u");
    let touch = |set: i64| {
        let time = a_plus(-HOUR - (set * 37 % 128) * SECOND);
        let click = at_ip_ua(click(&format!("c{set:03}"), time)).without_ids();
        let kinds = KINDS.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        kinds.fold(click, |click, (_, kind)| click.and(kind, &format!("{kind}-{set}")))
    };
    let facts: Vec<Draft> = (0..128).map(touch).collect();
    let reversed = facts.iter().rev().cloned().map(|draft| vec![draft]).collect::<Vec<_>>();
    let a = at_ip_ua(activation("a", A).without_ids());
    let policy = rules_with(|app| app.probabilistic = true);
    let expected = "a: install attributed c000 (click by ip_ua) + 45 (click by ip_ua) \
                    + 90 (click by ip_ua) + 7 (click by ip_ua)";
    let together = vec![identified(facts.into_iter().chain([a.clone()]))];
    let one_by_one = [vec![a]].into_iter().chain(reversed).map(identified).collect();
    for batches in [together, one_by_one] {
        let worker = worker_after(Memory::default(), &policy, batches);
        let rows = worker.ledger().row_texts();
        assert_eq!(rows.iter().map(|row| &*row.short).collect::<Vec<_>>(), [expected]);
    }
}
