//! Damaged entries of the outbox.

use adtrail_store::maintenance::verify::Problem;

use super::fixture::{Damage, Entry, Fixture, Raw, check_repaired};

/// Returns the first entry of the outbox whose key begins with a letter.
fn callback(raw: &Raw, first: u8) -> Entry {
    let mut entries = raw.entries("outbox").into_iter();
    entries.find(|(key, _)| key.first() == Some(&first)).expect("the outbox has such an entry")
}

const CALLBACKS: &[Damage] = &[
    ("the due time of a callback is deleted", &[Problem::CallbackDueWrong], |raw| {
        raw.delete("outbox", &callback(raw, b'd').0);
    }),
    ("a due time is of another callback", &[Problem::CallbackDueWrong], |raw| {
        let (mut key, value) = callback(raw, b'd');
        // The first byte of the event, after the endpoint and the time.
        key[17] ^= 1;
        raw.put("outbox", &key, &value);
    }),
    (
        "the callbacks of an event are deleted",
        &[Problem::CallbackDueWrong, Problem::CallbackCountDiffers],
        |raw| raw.delete("outbox", &callback(raw, b'r').0),
    ),
    ("the counts of an endpoint are altered", &[Problem::CallbackCountDiffers], |raw| {
        let (key, mut value) = callback(raw, b'c');
        value[0] ^= 1;
        raw.put("outbox", &key, &value);
    }),
    ("the counts of an endpoint are unreadable", &[Problem::CallbackCountDiffers], |raw| {
        raw.put("outbox", &callback(raw, b'c').0, b"x");
    }),
    ("the key of a callback is unreadable", &[Problem::CallbackKeyUnreadable], |raw| {
        raw.put("outbox", b"x", b"x");
    }),
];

#[test]
fn unreadable_callbacks_are_reported() {
    let fixture = Fixture::new();
    fixture.damage(|raw| raw.put("outbox", &callback(raw, b'r').0, b"x"));
    let report = fixture.verify();
    let problems: Vec<Problem> = report.found.keys().copied().collect();
    assert_eq!(problems, [Problem::CallbackUnreadable]);
}

#[test]
fn derived_data_of_callbacks_is_repaired() {
    check_repaired(CALLBACKS);
}
