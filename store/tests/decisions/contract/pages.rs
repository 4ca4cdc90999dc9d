//! Decisions that read many pages of facts.

use adtrail_store::memory::Memory;

use super::support::facts::{
    A, DAY, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified, impression,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{LedgerUnderTest, rows_in_any_order, worker_after};

#[test]
fn a_chain_of_many_pages_is_classified() {
    // One install and 300 reinstalls, then a new install 90 days after the first.
    let reinstall = |n: i64| activation(&format!("r{n:03}"), a_plus(-80 * DAY + n * 2 * MINUTE));
    let facts: Vec<_> = (0..300)
        .map(reinstall)
        .chain([activation("first", a_plus(-85 * DAY)), activation("last", a_plus(5 * DAY + 1))])
        .collect();
    let worker = worker_after(Memory::default(), &rules(), vec![identified(facts)]);
    let short: Vec<_> = worker.ledger().row_texts().into_iter().map(|row| row.short).collect();
    assert_eq!(short.first().map(String::as_str), Some("first: install organic"));
    assert_eq!(short.last().map(String::as_str), Some("last: install organic"));
    assert_eq!(short.iter().filter(|row| row.contains("reinstall unattributed")).count(), 300);
}

#[test]
fn an_effect_finds_its_activation_behind_many_pages() {
    // The effect belongs to the install: 299 duplicates follow the install, and 300 later activations follow the
    // effect.
    let duplicate = |n: i64| activation(&format!("d{n:03}"), a_plus(n));
    let later = |n: i64| activation(&format!("r{n:03}"), a_plus(HOUR + n * 2 * MINUTE));
    let facts = (1..300)
        .map(duplicate)
        .chain((0..300).map(later))
        .chain([activation("a", A), effect("e", a_plus(MINUTE))]);
    let worker = worker_after(Memory::default(), &rules(), vec![identified(facts)]);
    let rows = worker.ledger().row_texts();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: install organic of a"));
}

#[test]
fn the_greatest_id_wins_among_many_pages_of_simultaneous_activations() {
    let policy = rules_with(|app| app.duplicate_within_ms = 0);
    let facts = (100..300).map(|n| activation(&format!("a{n}"), A)).chain([effect("e", A)]);
    let worker = worker_after(Memory::default(), &policy, vec![identified(facts)]);
    let rows = worker.ledger().row_texts();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: reinstall organic of a299"));
}

#[test]
fn an_activation_behind_a_page_of_duplicates_wins_over_an_older_one_with_another_id() {
    let duplicates = (1..40).map(|n| activation(&format!("d{n}"), a_plus(n)));
    let older = activation("b", a_plus(-HOUR)).only("imei", "1");
    let effect = effect("e", a_plus(MINUTE)).and("imei", "1");
    let facts = duplicates.chain([older, activation("a", A), effect]);
    let rows = rows_in_any_order(&rules(), &identified(facts));
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: install organic of a"));
}

#[test]
fn many_pages_of_effects_are_corrected_with_their_activation() {
    let effects = (0..600).map(|n| effect(&format!("e{n:03}"), a_plus(n % 7)));
    let batches = [effects.collect(), vec![activation("a", A)], vec![click("c1", a_plus(-HOUR))]];
    let batches = batches.map(identified).into();
    let worker = worker_after(Memory::default(), &rules(), batches);
    let rows = worker.ledger().row_texts();
    assert_eq!(rows.len(), 601);
    assert!(rows.iter().all(|row| row.short.contains(": install attributed c1 (click by oaid)")));
}

#[test]
fn many_pages_of_clicks_are_counted() {
    let facts = |n: i64| {
        let click = |n| click(&format!("x{n:03}"), a_plus(-HOUR + n)).campaign(1);
        (0..n).map(click).chain([activation("a", A)]).collect::<Vec<_>>()
    };
    let winner = |max: u32, n, expected: &str| {
        let policy = rules_with(|app| app.fraud.clicks_per_device_max = max);
        let worker = worker_after(Memory::default(), &policy, vec![identified(facts(n))]);
        let rows = worker.ledger().row_texts();
        assert!(rows[0].short.contains(expected), "{}", rows[0].short);
    };
    winner(300, 300, "x299");
    winner(299, 300, "x298");
    winner(20, 600, "x019");
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
