//! Damaged derived data in tables: each damage is repaired.

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::decimal_sum::Amount;
use adtrail_store::layout::key::{self, FactTableKey, RowKey};
use adtrail_store::layout::summary_counts::Totals;
use adtrail_store::maintenance::verify::{Check, Problem};
use attribution::facts::event::{Family, Pid, SpreadId};
use attribution::ledger::record::{ActivationRecord, FactRecord, RowMeta};
use attribution::rules::row::{EventType, Status};

use super::fixture::{Damage, Entry, Fixture, Raw, check_made_whole, check_repaired};
use super::support::rules::{X, Y};

/// Returns the newest matching row, whose decision is not final yet.
fn row(raw: &Raw, is_wanted: impl Fn(&RowView<'_>) -> bool) -> Entry {
    let rows = raw
        .entries("events")
        .into_iter()
        .filter(|(_, value)| is_wanted(&RowView::decode(value).expect("a valid row")));
    rows.max_by_key(|(key, _)| RowKey::decode(key).expect("a valid row key").event_time)
        .expect("a row matches")
}

/// Returns the oldest row of a type, whose decision is final.
fn old_row(raw: &Raw, event_type: EventType) -> Entry {
    let rows = raw
        .entries("events")
        .into_iter()
        .filter(|(_, value)| RowView::decode(value).expect("a valid row").event_type == event_type);
    rows.min_by_key(|(key, _)| RowKey::decode(key).expect("a valid row key").event_time)
        .expect("a row matches")
}

fn is_credited(row: &RowView<'_>) -> bool {
    row.event_type == EventType::Activation && row.status == Status::Attributed
}

pub fn records(raw: &Raw, family: Family, table: &str) -> Vec<(Box<[u8]>, FactRecord)> {
    let record = |(key, value): Entry| match key::decode_fact(&key) {
        Some(FactTableKey::FactRecord { pid, .. }) => {
            Some((key, fact_record::decode(family, pid, &value).expect("a valid record")))
        }
        _ => None,
    };
    let mut records: Vec<_> = raw.entries(table).into_iter().filter_map(record).collect();
    records.sort_by_key(|(_, record)| record.time());
    records
}

/// Returns the newest or the oldest credited activation.
pub fn credited(raw: &Raw, is_newest: bool) -> (Box<[u8]>, ActivationRecord) {
    let mut records =
        records(raw, Family::Activation, "activations").into_iter().filter_map(|(key, record)| {
            match record {
                FactRecord::Activation(record)
                    if record.current_row?.status == Status::Attributed =>
                {
                    Some((key, *record))
                }
                _ => None,
            }
        });
    let found = if is_newest { records.next_back() } else { records.next() };
    found.expect("an activation is credited")
}

fn put_activation(raw: &Raw, key: &[u8], record: FactRecord) {
    let mut value = Vec::new();
    fact_record::encode(&record, &mut value);
    raw.put("activations", key, &value);
}

/// Returns the newest index entry of a table that leads to a fact.
fn index_entry(raw: &Raw, table: &str) -> Entry {
    let entries =
        raw.entries(table).into_iter().filter_map(|(key, value)| match key::decode_fact(&key)? {
            FactTableKey::Index { time, .. } if value[..8] != [0; 8] => Some((time, (key, value))),
            _ => None,
        });
    entries.max_by_key(|(time, _)| *time).expect("the table has an index entry").1
}

/// Returns the newest index entry that leads to a touch, and its table.
fn touch_entry(raw: &Raw) -> (String, Entry) {
    newest_touch_entry(raw, |_| true)
}

fn newest_touch_entry(raw: &Raw, is_wanted: impl Fn(Pid) -> bool) -> (String, Entry) {
    let time = |key: &[u8]| match key::decode_fact(key) {
        Some(FactTableKey::Index { time, pid, .. }) if is_wanted(pid) => Some(time),
        _ => None,
    };
    let mut newest: Option<(_, _, Entry)> = None;
    for table in raw.touch_tables() {
        for (key, value) in raw.entries(&table) {
            if value[..8] == [0; 8] || value.len() > 9 {
                continue;
            }
            if let Some(time) = time(&key)
                && newest.as_ref().is_none_or(|(newest, ..)| *newest < time)
            {
                newest = Some((time, table.clone(), (key, value)));
            }
        }
    }
    let (_, table, entry) = newest.expect("the store has a touch");
    (table, entry)
}

fn delete_old_row(raw: &Raw, event_type: EventType) {
    raw.delete("events", &old_row(raw, event_type).0);
}

/// Changes the row metadata in a record, which identifies the counts that include the row.
fn alter_row_meta(raw: &Raw, change: fn(&mut RowMeta)) {
    let (key, mut record) = credited(raw, true);
    change(&mut record.current_row.as_mut().expect("the event has a row").row_meta);
    put_activation(raw, &key, FactRecord::Activation(Box::new(record)));
}

/// The counts still include the row, so they are correct again once it is restored.
const FINAL_ROW: &[Problem] = &[
    Problem::RowMissing,
    Problem::CellDiffers,
    Problem::RegionDiffers,
    Problem::TotalsDiffer,
    Problem::CountDiffers,
];

const ROWS: &[Damage] = &[
    ("a row is deleted", &[Problem::RowMissing], |raw| {
        raw.delete("events", &row(raw, is_credited).0);
    }),
    ("the final row of an activation is deleted", FINAL_ROW, |raw| {
        delete_old_row(raw, EventType::Activation);
    }),
    ("the final row of an effect is deleted", FINAL_ROW, |raw| {
        delete_old_row(raw, EventType::Effect);
    }),
    ("an event has a second row, under another campaign", &[Problem::SecondRow], |raw| {
        let (key, value) = row(raw, is_credited);
        let key = RowKey::decode(&key).expect("a valid row key");
        let other = RowKey { spreadid: SpreadId(key.spreadid.0 + 1), ..key };
        raw.put("events", &other.encode(), &value);
    }),
    (
        "a row is in a partition of another app",
        &[Problem::RowMissing, Problem::RowMisplaced],
        |raw| {
            let (key, value) = row(raw, is_credited);
            let key = RowKey::decode(&key).expect("a valid row key");
            let other = RowKey { partition: (key.partition + 1) % 8, ..key };
            raw.put("events", &other.encode(), &value);
            raw.delete("events", &key.encode());
        },
    ),
    ("the value of a row is cut", &[Problem::RowUnreadable], |raw| {
        let (key, value) = row(raw, is_credited);
        raw.put("events", &key, &value[..value.len() - 1]);
    }),
    ("a row shows another address", &[Problem::RowDiffers], |raw| {
        let is_wanted =
            |row: &RowView<'_>| is_credited(row) && !row.text(TextCell::ClickId).is_empty();
        let (key, mut value) = row(raw, is_wanted);
        let last = value.len() - 1;
        let at = (0..last)
            .find(|at| value[*at..].starts_with(b"203.0.113"))
            .expect("the row has the address");
        value[at] = b'1';
        raw.put("events", &key, &value);
    }),
    ("a record has another hash of its fact", &[Problem::RowDiffers], |raw| {
        alter_row_meta(raw, |row_meta| row_meta.fact_hash ^= 2);
    }),
    ("a record has no install type of its row", &[Problem::RowDiffers], |raw| {
        alter_row_meta(raw, |row_meta| row_meta.install_type = None);
    }),
];

#[test]
fn damaged_rows_are_repaired() {
    check_repaired(ROWS);
}

fn alter_decision(raw: &Raw, is_newest: bool) {
    let (key, mut record) = credited(raw, is_newest);
    let decision = record.decision.as_mut().expect("the activation has a decision");
    decision.credit.touch.as_mut().expect("the activation is attributed to a touch").click_id =
        "c-other".into();
    put_activation(raw, &key, FactRecord::Activation(Box::new(record)));
}

const DECISIONS: &[Damage] = &[
    ("the newest decision is altered", &[Problem::DecisionAltered], |raw| {
        alter_decision(raw, true);
    }),
    ("the oldest decision is altered", &[Problem::DecisionAltered], |raw| {
        alter_decision(raw, false);
    }),
    ("the install chain for the next activation is altered", &[Problem::DecisionAltered], |raw| {
        let (key, mut record) = credited(raw, true);
        record.chains.chains[0].last_counted.id = "a-other".into();
        put_activation(raw, &key, FactRecord::Activation(Box::new(record)));
    }),
    ("an index entry leads to no fact", &[Problem::EntryToNowhere], |raw| {
        let (table, (key, value)) = touch_entry(raw);
        let mut other = key.to_vec();
        other[23] ^= 1;
        raw.put(&table, &other, &value);
    }),
    ("an index entry is too short", &[Problem::EntryUnreadable], |raw| {
        let (mut key, _) = index_entry(raw, "effects");
        key[0] ^= 1;
        raw.put("effects", &key, b"short");
    }),
    ("an index entry is under a key of another fact", &[Problem::EntryOfAnother], |raw| {
        let (table, (mut key, value)) = touch_entry(raw);
        key[0] ^= 1;
        raw.put(&table, &key, &value);
    }),
];

fn delete_entry(raw: &Raw, table: &str) {
    raw.delete(table, &index_entry(raw, table).0);
}

fn delete_marker(raw: &Raw, table: &str) {
    let markers =
        raw.entries(table).into_iter().filter_map(|(key, value)| match key::decode_fact(&key)? {
            FactTableKey::Index { time, .. } if *value == [0; 8] => Some((time, key)),
            _ => None,
        });
    let (_, key) = markers.max_by_key(|(time, _)| *time).expect("the table has a marker");
    raw.delete(table, &key);
}

fn received_md5_name() -> Vec<u8> {
    [&b"received_md5/"[..], &X.0.to_be_bytes()].concat()
}

/// Returns the reference to the contents of a touch that has not expired: its table, key and value.
fn reference(raw: &Raw) -> (String, Vec<u8>, Vec<u8>) {
    reference_of(raw, touch_entry(raw))
}

/// Returns the reference to which an index entry leads.
fn reference_of(raw: &Raw, (table, (entry, value)): (String, Entry)) -> (String, Vec<u8>, Vec<u8>) {
    // The id of the fact is in the value of the entry, app and tag are in its key.
    let key = [&value[..8], &entry[8..12], &[0; 6], &entry[18..]].concat();
    let value = raw.get(&table, &key);
    (table, key, value)
}

/// Returns the references to touches in a table.
fn references(raw: &Raw, table: &str) -> Vec<Entry> {
    let is_reference =
        |key: &[u8]| matches!(key::decode_fact(key), Some(FactTableKey::FactRecord { .. }));
    raw.entries(table).into_iter().filter(|(key, _)| is_reference(key)).collect()
}

/// Returns the reference to the oldest touch of app Y without a lookback of its own, which has expired since the last
/// compaction: its table, key and value.
fn expired_reference(raw: &Raw) -> (String, Vec<u8>, Vec<u8>) {
    let is_wanted = |(key, value): &Entry| key[8..12] == Y.0.to_be_bytes() && value.len() == 16;
    let mut oldest: Option<(String, Entry)> = None;
    for table in raw.touch_tables() {
        for (key, value) in references(raw, &table).into_iter().filter(is_wanted) {
            // The time follows the number.
            if oldest.as_ref().is_none_or(|(_, (_, oldest))| value[8..] < oldest[8..]) {
                oldest = Some((table.clone(), (key, value)));
            }
        }
    }
    let (table, (key, value)) = oldest.expect("app Y has touches");
    (table, key.into(), value.into())
}

/// Returns the record of the newest table of touches: its name in `meta` and its value.
fn touch_table_record(raw: &Raw) -> Entry {
    let (table, _) = touch_entry(raw);
    let number: u32 = table["touches-".len()..].parse().expect("a number");
    let name = [&b"touch_table/"[..], &number.to_be_bytes()].concat();
    let value = raw.get("meta", &name);
    (name.into(), value.into())
}

const TOUCHES: &[Damage] = &[
    (
        "the reference to a touch is too short",
        &[Problem::EntryUnreadable, Problem::EntryToNowhere, Problem::EntryMissing],
        |raw| {
            let (table, key, value) = reference(raw);
            raw.put(&table, &key, &value[..15]);
        },
    ),
    (
        "the reference to a touch is deleted",
        &[Problem::EntryToNowhere, Problem::EntryMissing],
        |raw| {
            let (table, key, _) = reference(raw);
            raw.delete(&table, &key);
        },
    ),
    ("a reference leads to no touch", &[Problem::EntryToNowhere], |raw| {
        let (table, mut key, mut value) = reference(raw);
        key[23] ^= 1;
        value[0] ^= 1;
        raw.put(&table, &key, &value);
    }),
    ("a reference leads to another touch", &[Problem::EntryOfAnother], |raw| {
        let (table, mut key, value) = reference(raw);
        key[23] ^= 1;
        raw.put(&table, &key, &value);
    }),
    ("an expired reference leads to another touch", &[Problem::EntryOfAnother], |raw| {
        let (table, key, value) = expired_reference(raw);
        let others = references(raw, &table).into_iter();
        let (_, other) = others.max_by_key(|(_, other)| other[8..16].to_vec()).expect("a touch");
        assert!(other[..8] != value[..8], "the table has one touch");
        raw.put(&table, &key, &[&other[..8], &value[8..]].concat());
    }),
    (
        "the record of a table of touches lacks apps and lookbacks",
        &[Problem::TouchTableWrong],
        |raw| {
            let (name, mut value) = touch_table_record(raw);
            // One day, and one app without lookbacks.
            let first: [u8; 4] = value[..4].try_into().expect("four bytes");
            value[4..8].copy_from_slice(&first);
            let day = u32::from_be_bytes(first);
            for app in value[8..].chunks_exact_mut(9) {
                app[4..8].copy_from_slice(&day.to_be_bytes());
                app[8] = 0;
            }
            raw.put("meta", &name, &value[..17]);
        },
    ),
];

const LOST: &[Damage] = &[
    ("an event has no decision", &[Problem::Undecided], |raw| {
        let (key, mut record) = credited(raw, true);
        (record.current_row, record.decision) = (None, None);
        put_activation(raw, &key, FactRecord::Activation(Box::new(record)));
    }),
    ("an index entry of a touch is deleted", &[Problem::EntryMissing], |raw| {
        let (table, (key, _)) = touch_entry(raw);
        raw.delete(&table, &key);
    }),
    ("an index entry of an activation is deleted", &[Problem::EntryMissing], |raw| {
        delete_entry(raw, "activations");
    }),
    ("an index entry of an effect is deleted", &[Problem::EntryMissing], |raw| {
        delete_entry(raw, "effects");
    }),
    ("a marker of a touch is deleted", &[Problem::MarkerMissing], |raw| {
        let (table, _) = touch_entry(raw);
        delete_marker(raw, &table);
    }),
    ("a marker of an activation is deleted", &[Problem::MarkerMissing], |raw| {
        delete_marker(raw, "activations");
    }),
    ("an app lacks the ids that were received as MD5", &[Problem::ReceivedMd5Wrong], |raw| {
        raw.delete("meta", &received_md5_name());
    }),
    ("an app lacks a kind that was received as MD5", &[Problem::ReceivedMd5Wrong], |raw| {
        let name = received_md5_name();
        let mut value = raw.get("meta", &name);
        value.fill(0);
        raw.put("meta", &name, &value);
    }),
    ("the ids that an app received as MD5 are damaged", &[Problem::ReceivedMd5Wrong], |raw| {
        raw.put("meta", &received_md5_name(), b"x");
    }),
    (
        "an index entry leads to another fact",
        &[Problem::EntryToNowhere, Problem::EntryMissing],
        |raw| {
            let (table, (key, mut value)) = touch_entry(raw);
            value[0] ^= 1;
            raw.put(&table, &key, &value);
        },
    ),
];

#[test]
fn damaged_decisions_and_index_entries_are_repaired() {
    check_repaired(DECISIONS);
    check_made_whole(TOUCHES);
    check_made_whole(LOST);
}

const TOUCH_NUMBERS: &[Damage] = &[
    ("the number of the next touch is in use", &[Problem::TouchNumberWrong], |raw| {
        raw.put("meta", b"touch_number", &1_u64.to_be_bytes());
    }),
    ("the number of the next touch is too great", &[Problem::TouchNumberWrong], |raw| {
        raw.put("meta", b"touch_number", &[0xff; 8]);
    }),
    ("the number of the next touch is cut", &[Problem::TouchNumberWrong], |raw| {
        raw.put("meta", b"touch_number", &[0; 7]);
    }),
    ("the number of the next touch is deleted", &[Problem::TouchNumberWrong], |raw| {
        raw.delete("meta", b"touch_number");
    }),
];

#[test]
fn a_damaged_number_of_the_next_touch_is_repaired() {
    check_repaired(TOUCH_NUMBERS);
}

/// Counting on from such a number would overflow.
#[test]
fn a_number_of_the_next_touch_that_is_too_great_prevents_opening() {
    let fixture = Fixture::new();
    fixture.damage(|raw| raw.put("meta", b"touch_number", &[0xff; 8]));
    let opened = Embedded::open(&fixture.settings, &fixture.policy).map(drop);
    assert!(opened.is_err_and(|error| matches!(error, StoreError::Corrupt { .. })));
    assert!(fixture.repair().is_repaired());
    fixture.check_usable();
}

/// The contents of an expired touch may be gone, while its reference still leads to their number.
#[test]
fn the_number_of_an_expired_reference_is_in_use() {
    let fixture = Fixture::new();
    let mut number = 0;
    fixture.damage(|raw| {
        let (table, mut key, value) = expired_reference(raw);
        let reserved = raw.get("meta", b"touch_number").try_into().map(u64::from_be_bytes);
        number = reserved.expect("eight bytes") + 7;
        key[23] ^= 1;
        raw.put(&table, &key, &[&number.to_be_bytes()[..], &value[8..]].concat());
    });
    let report = fixture.verify();
    let found: Vec<_> = report.found.keys().copied().collect();
    assert_eq!(found, [Problem::TouchNumberWrong], "{:?}", report.examples);
    assert!(fixture.repair().is_repaired());
    fixture.check_whole();
    let reserved = Raw::open(fixture.path()).get("meta", b"touch_number");
    assert_eq!(reserved, (number + 1).to_be_bytes());
}

/// A compaction may remove the reference to an expired touch before its contents. A reference that is derived again
/// could hide the touch, if it has arrived again since.
#[test]
fn expired_contents_without_a_reference_are_no_damage() {
    let fixture = Fixture::new();
    let (mut table, mut key) = (String::new(), Vec::new());
    fixture.damage(|raw| {
        (table, key, _) = expired_reference(raw);
        raw.delete(&table, &key);
    });
    fixture.check_whole();
    let repaired = fixture.repair();
    assert!(repaired.is_whole(), "{:?}", repaired.examples);
    let references = references(&Raw::open(fixture.path()), &table);
    assert!(references.iter().all(|(other, _)| **other != *key), "the touch is found again");
}

/// Then nothing says which table has which days, so decisions are recomputed from the touches of all of them.
#[test]
fn an_unreadable_record_of_a_table_of_touches_is_the_only_damage() {
    let fixture = Fixture::new();
    fixture.damage(|raw| {
        let (name, value) = touch_table_record(raw);
        raw.put("meta", &name, &value[..7]);
    });
    let report = fixture.verify();
    let found: Vec<_> = report.found.keys().copied().collect();
    assert_eq!(found, [Problem::FileDamaged], "{:?}", report.examples);
    let named = &report.examples[0].at;
    assert!(named.contains("the record of a table of touches"), "{named}");
    assert_eq!(report.unchecked, 0);
    assert!(report.checked(Check::Decisions) > report.final_decisions + 200);
    assert!(!fixture.repair().is_repaired());
}

/// With the days of the touch, the record would overlap with those of other tables, and the store would not open.
#[test]
fn a_touch_in_a_table_of_other_days_is_not_covered_by_a_repair() {
    let fixture = Fixture::new();
    fixture.damage(|raw| {
        let (table, key, value) = reference(raw);
        let [oldest, .., newest] = &raw.touch_tables()[..] else { panic!("a few tables") };
        assert_eq!(table, *newest);
        let (from, to) = (format!("{newest}-contents"), format!("{oldest}-contents"));
        raw.put(&to, &value[..8], &raw.get(&from, &value[..8]));
        raw.delete(&from, &value[..8]);
        raw.put(oldest, &key, &value);
        raw.delete(newest, &key);
    });
    assert!(fixture.verify().found.contains_key(&Problem::TouchTableWrong));
    for _ in 0..2 {
        let repaired = fixture.repair();
        let wrong = repaired.found[&Problem::TouchTableWrong];
        assert_eq!((wrong.found, wrong.repaired), (1, 0), "{:?}", repaired.examples);
        drop(fixture.open());
    }
}

/// The entries lead nowhere until the reference is derived. Deleted probabilistic ones could not be derived.
#[test]
fn a_repaired_reference_keeps_the_entries_of_its_touch() {
    let fixture = Fixture::new();
    let (mut table, mut before) = (String::new(), Vec::new());
    fixture.damage(|raw| {
        // Only app X has probabilistic entries.
        let (of, key, _) = reference_of(raw, newest_touch_entry(raw, |pid| pid == X));
        before = raw.entries(&of);
        raw.delete(&of, &key);
        table = of;
    });
    assert!(fixture.repair().is_repaired());
    fixture.check_whole();
    assert!(Raw::open(fixture.path()).entries(&table) == before, "other entries than before");
}

const HOURS: &[Damage] = &[
    ("the counts of an hour are those of another", &[Problem::CellDiffers], |raw| {
        let entries = raw.entries("cells");
        raw.put("cells", &entries[0].0, &entries[1].1);
    }),
    ("the counts of an hour are cut", &[Problem::CellUnreadable], |raw| {
        raw.put("cells", &raw.entries("cells")[0].0, b"x");
    }),
    ("the counts of an hour are also under another key", &[Problem::CellDiffers], |raw| {
        let (mut key, value) = raw.entries("cells").swap_remove(0);
        key[9] ^= 0xff;
        raw.put("cells", &key, &value);
    }),
];

const QUARTERS: &[Damage] = &[
    ("a quarter-hour has one more row", &[Problem::CountDiffers], |raw| {
        let (key, value) = raw.entries("counts").swap_remove(7);
        let mut count = Totals::decode(&value).expect("a valid count");
        count.rows += 1;
        raw.put("counts", &key, &count.encode());
    }),
    ("a quarter-hour has a little more revenue", &[Problem::CountDiffers], |raw| {
        let has_revenue =
            |(_, value): &Entry| !Totals::decode(value).expect("a valid count").revenue.is_zero();
        let mut counts = raw.entries("counts").into_iter();
        let (key, value) = counts.find(has_revenue).expect("some counts have revenue");
        let mut count = Totals::decode(&value).expect("a valid count");
        count.revenue.add(&Amount::parse("0.000001").expect("a valid amount"));
        raw.put("counts", &key, &count.encode());
    }),
    ("the count of a quarter-hour is deleted", &[Problem::CountDiffers], |raw| {
        raw.delete("counts", &raw.entries("counts")[7].0);
    }),
    ("the count of a quarter-hour is under another key", &[Problem::CountDiffers], |raw| {
        let (mut key, value) = raw.entries("counts").swap_remove(7);
        raw.delete("counts", &key);
        key[11] ^= 1;
        raw.put("counts", &key, &value);
    }),
    (
        "the count of a quarter-hour is empty",
        &[Problem::CountUnreadable, Problem::CountDiffers],
        |raw| raw.put("counts", &raw.entries("counts")[7].0, b""),
    ),
    ("the key of a count is unreadable", &[Problem::CountUnreadable], |raw| {
        raw.put("counts", b"x", b"x");
    }),
];

const CREDITED: &[Damage] = &[
    ("a credited activation of a campaign is deleted", &[Problem::CampaignIndexDiffers], |raw| {
        raw.delete("brought", &raw.entries("brought")[3].0);
    }),
    ("a campaign has another credited activation", &[Problem::CampaignIndexDiffers], |raw| {
        let (mut key, value) = raw.entries("brought").swap_remove(3);
        key[21] ^= 1;
        raw.put("brought", &key, &value);
    }),
    ("a credited activation has another value", &[Problem::CampaignIndexDiffers], |raw| {
        let (key, mut value) = raw.entries("brought").swap_remove(3);
        value[1] ^= 1;
        raw.put("brought", &key, &value);
    }),
    ("a credited activation is unreadable", &[Problem::CampaignEntryUnreadable], |raw| {
        raw.put("brought", b"x", b"x");
    }),
];

fn region(raw: &Raw) -> Entry {
    let regions = raw.entries("meta").into_iter().filter(|(name, _)| name.starts_with(b"region/"));
    regions.max_by_key(|(_, value)| value.to_vec()).expect("the store has a region")
}

const REGIONS: &[Damage] = &[
    ("the statistics of a region are altered", &[Problem::RegionDiffers], |raw| {
        let (name, mut value) = region(raw);
        value[7] ^= 1;
        raw.put("meta", &name, &value);
    }),
    ("a region is cut", &[Problem::RegionsBroken], |raw| {
        let (name, value) = region(raw);
        raw.put("meta", &name, &value[1..]);
    }),
    ("the first region is deleted", &[Problem::RegionsBroken], |raw| {
        raw.delete("meta", &[&b"region/"[..], &[0; 24]].concat());
    }),
    ("the totals are altered", &[Problem::TotalsDiffer], |raw| {
        let mut totals = raw.get("meta", b"totals");
        totals[0] ^= 2;
        raw.put("meta", b"totals", &totals);
    }),
];

fn app_entry_name() -> Vec<u8> {
    [&b"app/"[..], &X.0.to_be_bytes()].concat()
}

const APPS_AND_POSITIONS: &[Damage] = &[
    ("the entry of an app is cut", &[Problem::AppUnreadable], |raw| {
        raw.put("meta", &app_entry_name(), b"x");
    }),
    ("the entry of an app is deleted", &[Problem::AppUnreadable], |raw| {
        raw.delete("meta", &app_entry_name());
    }),
    ("a position is cut", &[Problem::PositionUnreadable], |raw| {
        let (key, value) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &value[1..]);
    }),
    ("a position is negative", &[Problem::PositionUnreadable], |raw| {
        let (key, _) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &(-1i64).to_be_bytes());
    }),
];

#[test]
fn damaged_aggregates_and_metadata_are_repaired() {
    for damages in [HOURS, QUARTERS, CREDITED, REGIONS, APPS_AND_POSITIONS] {
        check_repaired(damages);
    }
}
