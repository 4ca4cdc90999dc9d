//! Damages within tables of what is derived: each is made right.

use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::decimal_sum::Amount;
use adtrail_store::layout::key::{self, FactPlace, RowKey};
use adtrail_store::layout::summary_counts::Totals;
use adtrail_store::maintenance::verify::Problem;
use attribution::facts::event::{Family, SpreadId};
use attribution::ledger::record::{ActivationRecord, FactRecord, RowRef};
use attribution::rules::row::{EventType, Status};

use super::bed::{Damage, Entry, Raw, check_made_whole, check_repaired};
use super::support::rules::X;

/// The last row by time that is so: it can still be decided again.
fn row(raw: &Raw, is: impl Fn(&RowView<'_>) -> bool) -> Entry {
    let rows = raw
        .entries("events")
        .into_iter()
        .filter(|(_, value)| is(&RowView::decode(value).expect("a row")));
    rows.max_by_key(|(key, _)| RowKey::decode(key).expect("a key").event_time).expect("a row")
}

/// The first row by time: what it was decided from is gone, or will be.
fn old_row(raw: &Raw, of: EventType) -> Entry {
    let rows = raw
        .entries("events")
        .into_iter()
        .filter(|(_, value)| RowView::decode(value).expect("a row").event_type == of);
    rows.min_by_key(|(key, _)| RowKey::decode(key).expect("a key").event_time).expect("a row")
}

fn is_credited(row: &RowView<'_>) -> bool {
    row.event_type == EventType::Activation && row.status == Status::Attributed
}

pub fn records(raw: &Raw, family: Family, table: &str) -> Vec<(Box<[u8]>, FactRecord)> {
    let of = |(key, value): Entry| match key::decode_fact(&key) {
        Some(FactPlace::FactRecord { pid, .. }) => {
            Some((key, fact_record::decode(family, pid, &value).expect("a home")))
        }
        _ => None,
    };
    let mut records: Vec<_> = raw.entries(table).into_iter().filter_map(of).collect();
    records.sort_by_key(|(_, record)| record.time());
    records
}

/// An activation that is credited: the newest, or the oldest.
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
    found.expect("an activation")
}

fn put_home(raw: &Raw, key: &[u8], record: FactRecord) {
    let mut value = Vec::new();
    fact_record::encode(&record, &mut value);
    raw.put("activations", key, &value);
}

/// An index entry of a table that leads to a fact: the newest of all.
fn index_entry(raw: &Raw, table: &str) -> Entry {
    let entries =
        raw.entries(table).into_iter().filter_map(|(key, value)| match key::decode_fact(&key)? {
            FactPlace::Index { time, .. } if value[..8] != [0; 8] => Some((time, (key, value))),
            _ => None,
        });
    entries.max_by_key(|(time, _)| *time).expect("an entry").1
}

fn delete_old_row(raw: &Raw, of: EventType) {
    raw.delete("events", &old_row(raw, of).0);
}

/// A home that notes something else of its row would be taken from the counts as that.
fn note_otherwise(raw: &Raw, change: fn(&mut RowRef)) {
    let (key, mut record) = credited(raw, true);
    change(&mut record.current_row.as_mut().expect("a row").place);
    put_home(raw, &key, FactRecord::Activation(Box::new(record)));
}

/// The counts still say what they said, so they are right again with the row.
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
        let key = RowKey::decode(&key).expect("a key");
        let other = RowKey { spreadid: SpreadId(key.spreadid.0 + 1), ..key };
        raw.put("events", &other.encode(), &value);
    }),
    (
        "a row stands in a partition of another app",
        &[Problem::RowMissing, Problem::RowMisplaced],
        |raw| {
            let (key, value) = row(raw, is_credited);
            let key = RowKey::decode(&key).expect("a key");
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
        let is = |row: &RowView<'_>| is_credited(row) && !row.text(TextCell::ClickId).is_empty();
        let (key, mut value) = row(raw, is);
        let last = value.len() - 1;
        let at = (0..last).find(|at| value[*at..].starts_with(b"203.0.113")).expect("an address");
        value[at] = b'1';
        raw.put("events", &key, &value);
    }),
    ("a home notes another hash of its fact", &[Problem::RowDiffers], |raw| {
        note_otherwise(raw, |place| place.fact_hash ^= 2);
    }),
    ("a home notes no install type", &[Problem::RowDiffers], |raw| {
        note_otherwise(raw, |place| place.install_type = None);
    }),
];

#[test]
fn damaged_rows_are_made_right() {
    check_repaired(ROWS);
}

fn alter_decision(raw: &Raw, is_newest: bool) {
    let (key, mut record) = credited(raw, is_newest);
    let decision = record.decision.as_mut().expect("a decision");
    decision.credit.touch.as_mut().expect("a touch").click_id = "c-other".into();
    put_home(raw, &key, FactRecord::Activation(Box::new(record)));
}

const DECISIONS: &[Damage] = &[
    ("the newest decision is altered", &[Problem::DecisionAltered], |raw| {
        alter_decision(raw, true);
    }),
    ("the oldest decision is altered", &[Problem::DecisionAltered], |raw| {
        alter_decision(raw, false);
    }),
    ("what the next activation goes on from is altered", &[Problem::DecisionAltered], |raw| {
        let (key, mut record) = credited(raw, true);
        record.chains.chains[0].real.id = "a-other".into();
        put_home(raw, &key, FactRecord::Activation(Box::new(record)));
    }),
    ("an index entry leads to nowhere", &[Problem::EntryToNowhere], |raw| {
        let (key, value) = index_entry(raw, "touches");
        let mut other = key.to_vec();
        other[23] ^= 1;
        raw.put("touches", &other, &value);
    }),
    ("an index entry is too short", &[Problem::EntryUnreadable], |raw| {
        let (mut key, _) = index_entry(raw, "effects");
        key[0] ^= 1;
        raw.put("effects", &key, b"short");
    }),
    ("an index entry is of another fact", &[Problem::EntryOfAnother], |raw| {
        let (mut key, value) = index_entry(raw, "touches");
        key[0] ^= 1;
        raw.put("touches", &key, &value);
    }),
];

fn delete_entry(raw: &Raw, table: &str) {
    raw.delete(table, &index_entry(raw, table).0);
}

fn delete_mark(raw: &Raw, table: &str) {
    let marks =
        raw.entries(table).into_iter().filter_map(|(key, value)| match key::decode_fact(&key)? {
            FactPlace::Index { time, .. } if *value == [0; 8] => Some((time, key)),
            _ => None,
        });
    let (_, key) = marks.max_by_key(|(time, _)| *time).expect("a mark");
    raw.delete(table, &key);
}

const LOST: &[Damage] = &[
    ("an event was never decided on", &[Problem::Undecided], |raw| {
        let (key, mut record) = credited(raw, true);
        (record.current_row, record.decision) = (None, None);
        put_home(raw, &key, FactRecord::Activation(Box::new(record)));
    }),
    ("an index entry of a touch is deleted", &[Problem::EntryMissing], |raw| {
        delete_entry(raw, "touches");
    }),
    ("an index entry of an activation is deleted", &[Problem::EntryMissing], |raw| {
        delete_entry(raw, "activations");
    }),
    ("an index entry of an effect is deleted", &[Problem::EntryMissing], |raw| {
        delete_entry(raw, "effects");
    }),
    ("a mark of a touch is deleted", &[Problem::MarkerMissing], |raw| {
        delete_mark(raw, "touches");
    }),
    ("a mark of an activation is deleted", &[Problem::MarkerMissing], |raw| {
        delete_mark(raw, "activations");
    }),
    ("an index entry leads elsewhere", &[Problem::EntryToNowhere, Problem::EntryMissing], |raw| {
        let (key, mut value) = index_entry(raw, "touches");
        value[0] ^= 1;
        raw.put("touches", &key, &value);
    }),
];

#[test]
fn damaged_decisions_and_index_entries_are_made_right() {
    check_repaired(DECISIONS);
    check_made_whole(LOST);
}

const HOURS: &[Damage] = &[
    ("the figures of an hour are those of another", &[Problem::CellDiffers], |raw| {
        let entries = raw.entries("cells");
        raw.put("cells", &entries[0].0, &entries[1].1);
    }),
    ("the figures of an hour are cut", &[Problem::CellUnreadable], |raw| {
        raw.put("cells", &raw.entries("cells")[0].0, b"x");
    }),
    ("the figures of an hour stand under another key too", &[Problem::CellDiffers], |raw| {
        let (mut key, value) = raw.entries("cells").swap_remove(0);
        key[9] ^= 0xff;
        raw.put("cells", &key, &value);
    }),
];

const QUARTERS: &[Damage] = &[
    ("a quarter has one row more", &[Problem::CountDiffers], |raw| {
        let (key, value) = raw.entries("counts").swap_remove(7);
        let mut count = Totals::decode(&value).expect("a count");
        count.rows += 1;
        raw.put("counts", &key, &count.encode());
    }),
    ("a quarter has a little more revenue", &[Problem::CountDiffers], |raw| {
        let is = |(_, value): &Entry| !Totals::decode(value).expect("a count").revenue.is_zero();
        let (key, value) = raw.entries("counts").into_iter().find(is).expect("a purchase");
        let mut count = Totals::decode(&value).expect("a count");
        count.revenue.add(&Amount::parse("0.000001").expect("an amount"));
        raw.put("counts", &key, &count.encode());
    }),
    ("the count of a quarter is deleted", &[Problem::CountDiffers], |raw| {
        raw.delete("counts", &raw.entries("counts")[7].0);
    }),
    ("the count of a quarter stands under another key", &[Problem::CountDiffers], |raw| {
        let (mut key, value) = raw.entries("counts").swap_remove(7);
        raw.delete("counts", &key);
        key[11] ^= 1;
        raw.put("counts", &key, &value);
    }),
    (
        "the count of a quarter is empty",
        &[Problem::CountUnreadable, Problem::CountDiffers],
        |raw| raw.put("counts", &raw.entries("counts")[7].0, b""),
    ),
    ("the key of a count is unreadable", &[Problem::CountUnreadable], |raw| {
        raw.put("counts", b"x", b"x");
    }),
];

const BROUGHT: &[Damage] = &[
    ("an activation that a campaign brought is deleted", &[Problem::BroughtDiffers], |raw| {
        raw.delete("brought", &raw.entries("brought")[3].0);
    }),
    ("a campaign brought another activation too", &[Problem::BroughtDiffers], |raw| {
        let (mut key, value) = raw.entries("brought").swap_remove(3);
        key[21] ^= 1;
        raw.put("brought", &key, &value);
    }),
    ("an activation was brought otherwise", &[Problem::BroughtDiffers], |raw| {
        let (key, mut value) = raw.entries("brought").swap_remove(3);
        value[1] ^= 1;
        raw.put("brought", &key, &value);
    }),
    ("what a campaign brought is unreadable", &[Problem::BroughtUnreadable], |raw| {
        raw.put("brought", b"x", b"x");
    }),
];

fn region(raw: &Raw) -> Entry {
    let regions = raw.entries("meta").into_iter().filter(|(name, _)| name.starts_with(b"region/"));
    regions.max_by_key(|(_, value)| value.to_vec()).expect("a region")
}

const REGIONS: &[Damage] = &[
    ("the figures of a region are altered", &[Problem::RegionDiffers], |raw| {
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

fn app_name() -> Vec<u8> {
    [&b"app/"[..], &X.0.to_be_bytes()].concat()
}

const APPS_AND_POSITIONS: &[Damage] = &[
    ("what is kept of an app is cut", &[Problem::AppUnreadable], |raw| {
        raw.put("meta", &app_name(), b"x");
    }),
    ("what is kept of an app is deleted", &[Problem::AppUnreadable], |raw| {
        raw.delete("meta", &app_name());
    }),
    ("a position is cut", &[Problem::PositionUnreadable], |raw| {
        let (key, value) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &value[1..]);
    }),
    ("a position is before the first", &[Problem::PositionUnreadable], |raw| {
        let (key, _) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &(-1i64).to_be_bytes());
    }),
];

#[test]
fn damaged_counts_and_what_is_kept_beside_them_are_made_right() {
    for damages in [HOURS, QUARTERS, BROUGHT, REGIONS, APPS_AND_POSITIONS] {
        check_repaired(damages);
    }
}
