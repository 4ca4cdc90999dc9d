//! Section 7: rows are written as soon as an event is known, and corrected by late facts.

use adtrail_store::memory::Memory;
use attribution::rules::row::{EventType, Status};
use attribution::worker::Worker;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified,
};
use super::support::rules::rules;
use super::support::run::{LedgerUnderTest, on_disk, process};

/// Checks the rows after each batch, in memory and on disk.
#[track_caller]
fn check_after_each<const N: usize>(batches: [Vec<Draft>; N], expected: [&[&str]; N]) {
    let mut memory = Worker::new(Memory::default(), rules());
    let (embedded, _dir) = on_disk(&rules());
    let mut embedded = Worker::new(embedded, rules());
    for (batch, expected) in batches.into_iter().zip(expected) {
        process(&mut memory, identified(batch.clone()));
        process(&mut embedded, identified(batch));
        for rows in [memory.ledger().row_texts(), embedded.ledger().row_texts()] {
            let short: Vec<_> = rows.iter().map(|row| &*row.short).collect();
            assert_eq!(short, expected);
        }
    }
}

#[test]
fn case_43_a_late_click_corrects_the_activation_and_its_effects() {
    check_after_each(
        [vec![activation("a", A), effect("e", a_plus(MINUTE))], vec![click("c1", a_plus(-HOUR))]],
        [
            &["a: install organic", "e: install organic of a"],
            &[
                "a: install attributed c1 (click by oaid)",
                "e: install attributed c1 (click by oaid) of a",
            ],
        ],
    );
}

#[test]
fn a_late_install_between_changes_which_install_is_the_original() {
    check_after_each(
        [
            vec![
                click("c1", a_plus(-HOUR)),
                activation("a", A),
                activation("c", a_plus(90 * DAY)),
                effect("e", a_plus(90 * DAY + MINUTE)),
            ],
            // This takes two steps, because an activation within 90 d of the install would be a reinstall.
            vec![activation("z", a_plus(-1)).only("imei", "1")],
            vec![activation("a", a_plus(-2 * DAY))],
        ],
        [
            &[
                "a: install attributed c1 (click by oaid)",
                "c: reinstall unattributed",
                "e: reinstall attributed c1 (click by oaid) of c",
            ],
            &[
                "z: install organic",
                "a: install attributed c1 (click by oaid)",
                "c: reinstall unattributed",
                "e: reinstall attributed c1 (click by oaid) of c",
            ],
            &[
                "a: install organic",
                "z: install organic",
                "c: install organic",
                "e: install organic of c",
            ],
        ],
    );
}

#[test]
fn a_correction_that_changes_the_key_deletes_the_old_row() {
    // Changes the campaign, then the time; both are part of the row key.
    check_after_each(
        [
            vec![click("c1", a_plus(-2 * HOUR)), activation("a", A)],
            vec![click("c2", a_plus(-HOUR))],
            vec![activation("a", a_plus(-90 * MINUTE))],
        ],
        [
            &["a: install attributed c1 (click by oaid)"],
            &["a: install attributed c2 (click by oaid) + 1 (click by oaid)"],
            &["a: install attributed c1 (click by oaid)"],
        ],
    );
}

#[test]
fn corrections_are_counted_by_old_and_new_status() {
    let mut worker = Worker::new(Memory::default(), rules());
    let first = process(&mut worker, identified([activation("a", A), effect("e", a_plus(1))]));
    assert_eq!(first.rows_written, [((None, Status::Organic), 2)].into());
    let second = process(&mut worker, identified([click("c1", a_plus(-HOUR))]));
    assert_eq!(second.rows_written, [((Some(Status::Organic), Status::Attributed), 2)].into());
    let outcomes = second.row_outcomes.iter();
    let outcomes: Vec<_> =
        outcomes.map(|(row, count)| (row.event_type, row.status, row.match_type, *count)).collect();
    let expected = EventType::ALL.map(|of| (of, Status::Attributed, Some("oaid"), 1));
    assert_eq!(outcomes, expected);
    let again = process(&mut worker, identified([click("c1", a_plus(-HOUR)), activation("a", A)]));
    assert_eq!(again.rows_written, [].into(), "a redelivery changes no decision");
    assert!(again.row_outcomes.is_empty());
    assert_eq!((again.touches.redelivered, again.activations.redelivered), (1, 1));
}

#[test]
fn facts_of_an_unknown_app_are_ignored() {
    let policy = std::sync::Arc::new(attribution::rules::policy::Policy::default());
    let mut worker = Worker::new(Memory::default(), policy);
    let report = process(&mut worker, identified([activation("a", A), click("c", A)]));
    assert_eq!(report, Default::default());
    assert!(worker.ledger().row_texts().is_empty());
}
