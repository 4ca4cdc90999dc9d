//! Damages within tables.

use adtrail_store::amount::Amount;
use adtrail_store::codec::home;
use adtrail_store::codec::row::{RowView, TextCell};
use adtrail_store::count::Count;
use adtrail_store::key::{self, FactPlace, RowKey};
use adtrail_store::verify::Problem;
use attribution::event::{Family, SpreadId};
use attribution::ledger::{ActivationHome, Home, RowPlace};
use attribution::matching;
use attribution::row::{EventType, Status};

use super::bed::{Bed, Entry, Raw, check_left, check_repaired};
use super::support::rules::X;

/// The last row by time that is so: it can still be decided afresh.
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

pub fn homes(raw: &Raw, family: Family, table: &str) -> Vec<(Box<[u8]>, Home)> {
    let of = |(key, value): Entry| match key::decode_fact(&key) {
        Some(FactPlace::Home { pid, .. }) => {
            Some((key, home::decode(family, pid, &value).expect("a home")))
        }
        _ => None,
    };
    let mut homes: Vec<_> = raw.entries(table).into_iter().filter_map(of).collect();
    homes.sort_by_key(|(_, home)| home.time());
    homes
}

/// An activation that is credited: the newest, or the oldest.
pub fn credited(raw: &Raw, is_newest: bool) -> (Box<[u8]>, ActivationHome) {
    let mut homes =
        homes(raw, Family::Activation, "activations").into_iter().filter_map(|(key, home)| {
            match home {
                Home::Activation(home) if home.present?.status == Status::Attributed => {
                    Some((key, *home))
                }
                _ => None,
            }
        });
    let found = if is_newest { homes.next_back() } else { homes.next() };
    found.expect("an activation")
}

fn put_home(raw: &Raw, key: &[u8], home: Home) {
    let mut value = Vec::new();
    home::encode(&home, &mut value);
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

#[test]
fn a_row_is_deleted() {
    check_repaired(&[Problem::RowMissing], |raw| {
        let (key, _) = row(raw, is_credited);
        raw.delete("events", &key);
    });
}

/// The counts still say what they said, so they are right again with the row.
#[test]
fn a_row_that_is_final_is_deleted() {
    for of in [EventType::Activation, EventType::Effect] {
        let problems = [
            Problem::RowMissing,
            Problem::CellDiffers,
            Problem::RegionDiffers,
            Problem::TotalsDiffer,
            Problem::CountDiffers,
        ];
        check_repaired(&problems, |raw| {
            let (key, _) = old_row(raw, of);
            raw.delete("events", &key);
        });
    }
}

#[test]
fn an_event_has_a_second_row_under_another_campaign() {
    check_repaired(&[Problem::SecondRow], |raw| {
        let (key, value) = row(raw, is_credited);
        let key = RowKey::decode(&key).expect("a key");
        let other = RowKey { spreadid: SpreadId(key.spreadid.0 + 1), ..key };
        raw.put("events", &other.encode(), &value);
    });
}

#[test]
fn a_row_stands_in_a_partition_of_another_app() {
    check_repaired(&[Problem::RowMissing, Problem::RowMisplaced], |raw| {
        let (key, value) = row(raw, is_credited);
        let key = RowKey::decode(&key).expect("a key");
        let other = RowKey { partition: (key.partition + 1) % 8, ..key };
        raw.put("events", &other.encode(), &value);
        raw.delete("events", &key.encode());
    });
}

#[test]
fn the_value_of_a_row_is_cut() {
    check_repaired(&[Problem::RowUnreadable], |raw| {
        let (key, value) = row(raw, is_credited);
        raw.put("events", &key, &value[..value.len() - 1]);
    });
}

#[test]
fn a_row_shows_another_id() {
    check_repaired(&[Problem::RowDiffers], |raw| {
        let is = |row: &RowView<'_>| is_credited(row) && !row.text(TextCell::ClickId).is_empty();
        let (key, mut value) = row(raw, is);
        let last = value.len() - 1;
        let at = (0..last).find(|at| value[*at..].starts_with(b"203.0.113")).expect("an address");
        value[at] = b'1';
        raw.put("events", &key, &value);
    });
}

#[test]
fn a_home_is_deleted() {
    let report = check_left(&[Problem::EntryToNowhere, Problem::RowWithoutFact], |raw| {
        let (key, _) = credited(raw, true);
        raw.delete("activations", &key);
    });
    let named = report.examples.iter().any(|one| one.at.contains(" activation a"));
    assert!(named, "{:?}", report.examples);
}

/// The decision is better than one without the click: it stays.
#[test]
fn a_click_is_lost_and_keeps_its_credit() {
    let bed = Bed::new();
    let before = bed.export();
    bed.damage(|raw| {
        let (_, home) = credited(raw, true);
        let touch = home.decision.and_then(|decision| decision.credit.touch).expect("a touch");
        let click = matching::fact_key(Family::Touch, home.fact.pid, &touch.click_id);
        raw.get("touches", &key::home(&click));
        raw.delete("touches", &key::home(&click));
    });
    let found = bed.verify().found;
    for problem in [Problem::TouchMissing, Problem::EntryToNowhere, Problem::DecisionDiffers] {
        assert!(found.contains_key(&problem), "{found:?}");
    }
    for _ in 0..2 {
        assert!(!bed.repair().is_repaired());
        assert!(before == bed.export(), "the export is another one");
    }
}

#[test]
fn a_home_is_cut() {
    check_left(&[Problem::FactUnreadable], |raw| {
        let (key, _) = credited(raw, true);
        let value = raw.get("activations", &key);
        raw.put("activations", &key, &value[..40]);
    });
}

#[test]
fn a_decision_is_altered() {
    for is_newest in [true, false] {
        check_repaired(&[Problem::DecisionAltered], |raw| {
            let (key, mut home) = credited(raw, is_newest);
            let decision = home.decision.as_mut().expect("a decision");
            decision.credit.touch.as_mut().expect("a touch").click_id = "c-other".into();
            put_home(raw, &key, Home::Activation(Box::new(home)));
        });
    }
}

#[test]
fn what_the_next_activation_goes_on_from_is_altered() {
    check_repaired(&[Problem::DecisionAltered], |raw| {
        let (key, mut home) = credited(raw, true);
        home.walks.walks[0].real.id = "a-other".into();
        put_home(raw, &key, Home::Activation(Box::new(home)));
    });
}

#[test]
fn an_event_was_never_decided_on() {
    let bed = Bed::new();
    bed.damage(|raw| {
        let (key, mut home) = credited(raw, true);
        (home.present, home.decision) = (None, None);
        put_home(raw, &key, Home::Activation(Box::new(home)));
    });
    assert!(bed.verify().found.contains_key(&Problem::Undecided));
    assert!(bed.repair().is_repaired());
    assert!(bed.verify().is_whole());
}

#[test]
fn an_index_entry_is_deleted() {
    for table in ["touches", "activations", "effects"] {
        let bed = Bed::new();
        bed.damage(|raw| raw.delete(table, &index_entry(raw, table).0));
        assert!(bed.verify().found.contains_key(&Problem::EntryMissing), "{table}");
        assert!(bed.repair().is_repaired());
        assert!(bed.verify().is_whole());
    }
}

#[test]
fn a_mark_is_deleted() {
    for table in ["touches", "activations"] {
        let bed = Bed::new();
        bed.damage(|raw| {
            let marks = raw.entries(table).into_iter().filter_map(|(key, value)| {
                match key::decode_fact(&key)? {
                    FactPlace::Index { time, .. } if *value == [0; 8] => Some((time, key)),
                    _ => None,
                }
            });
            let (_, key) = marks.max_by_key(|(time, _)| *time).expect("a mark");
            raw.delete(table, &key);
        });
        assert!(bed.verify().found.contains_key(&Problem::MarkMissing), "{table}");
        assert!(bed.repair().is_repaired());
        assert!(bed.verify().is_whole());
    }
}

#[test]
fn an_index_entry_leads_to_nowhere() {
    check_repaired(&[Problem::EntryToNowhere], |raw| {
        let (key, value) = index_entry(raw, "touches");
        let mut other = key.to_vec();
        other[23] ^= 1;
        raw.put("touches", &other, &value);
    });
    check_repaired(&[Problem::EntryUnreadable], |raw| {
        let (mut key, _) = index_entry(raw, "effects");
        key[0] ^= 1;
        raw.put("effects", &key, b"short");
    });
    check_repaired(&[Problem::EntryOfAnother], |raw| {
        let (mut key, value) = index_entry(raw, "touches");
        key[0] ^= 1;
        raw.put("touches", &key, &value);
    });
}

#[test]
fn an_index_entry_leads_elsewhere() {
    let bed = Bed::new();
    bed.damage(|raw| {
        let (key, mut value) = index_entry(raw, "touches");
        value[0] ^= 1;
        raw.put("touches", &key, &value);
    });
    let found = bed.verify().found;
    assert!(found.contains_key(&Problem::EntryToNowhere), "{found:?}");
    assert!(found.contains_key(&Problem::EntryMissing), "{found:?}");
    assert!(bed.repair().is_repaired());
    assert!(bed.verify().is_whole());
}

#[test]
fn counts_are_altered() {
    check_repaired(&[Problem::CellDiffers], |raw| {
        let entries = raw.entries("cells");
        raw.put("cells", &entries[0].0, &entries[1].1);
    });
    check_repaired(&[Problem::CellUnreadable], |raw| {
        raw.put("cells", &raw.entries("cells")[0].0, b"x");
    });
    check_repaired(&[Problem::CellDiffers], |raw| {
        let (mut key, value) = raw.entries("cells").swap_remove(0);
        key[9] ^= 0xff;
        raw.put("cells", &key, &value);
    });
}

#[test]
fn counts_of_quarters_are_altered() {
    check_repaired(&[Problem::CountDiffers], |raw| {
        let (key, value) = raw.entries("counts").swap_remove(7);
        let mut count = Count::decode(&value).expect("a count");
        count.rows += 1;
        raw.put("counts", &key, &count.encode());
    });
    check_repaired(&[Problem::CountDiffers], |raw| {
        let is = |(_, value): &Entry| !Count::decode(value).expect("a count").revenue.is_zero();
        let (key, value) = raw.entries("counts").into_iter().find(is).expect("a purchase");
        let mut count = Count::decode(&value).expect("a count");
        count.revenue.add(&Amount::parse("0.000001").expect("an amount"));
        raw.put("counts", &key, &count.encode());
    });
    check_repaired(&[Problem::CountDiffers], |raw| {
        raw.delete("counts", &raw.entries("counts")[7].0);
    });
    check_repaired(&[Problem::CountDiffers], |raw| {
        let (mut key, value) = raw.entries("counts").swap_remove(7);
        raw.delete("counts", &key);
        key[11] ^= 1;
        raw.put("counts", &key, &value);
    });
    check_repaired(&[Problem::CountUnreadable, Problem::CountDiffers], |raw| {
        raw.put("counts", &raw.entries("counts")[7].0, b"");
    });
    check_repaired(&[Problem::CountUnreadable], |raw| raw.put("counts", b"x", b"x"));
}

#[test]
fn what_campaigns_brought_is_altered() {
    check_repaired(&[Problem::BroughtDiffers], |raw| {
        raw.delete("brought", &raw.entries("brought")[3].0);
    });
    check_repaired(&[Problem::BroughtDiffers], |raw| {
        let (mut key, value) = raw.entries("brought").swap_remove(3);
        key[21] ^= 1;
        raw.put("brought", &key, &value);
    });
    check_repaired(&[Problem::BroughtDiffers], |raw| {
        let (key, mut value) = raw.entries("brought").swap_remove(3);
        value[1] ^= 1;
        raw.put("brought", &key, &value);
    });
    check_repaired(&[Problem::BroughtUnreadable], |raw| raw.put("brought", b"x", b"x"));
}

/// A home that notes something else of its row would be taken from the counts as that.
#[test]
fn a_home_notes_that_its_row_was_counted_otherwise() {
    for change in [
        |place: &mut RowPlace| place.fact_hash ^= 2,
        |place: &mut RowPlace| place.install_type = None,
    ] {
        check_repaired(&[Problem::RowDiffers], |raw| {
            let (key, mut home) = credited(raw, true);
            change(&mut home.present.as_mut().expect("a row").place);
            put_home(raw, &key, Home::Activation(Box::new(home)));
        });
    }
}

#[test]
fn a_region_is_altered() {
    let region = |raw: &Raw| {
        let regions =
            raw.entries("meta").into_iter().filter(|(name, _)| name.starts_with(b"region/"));
        regions.max_by_key(|(_, value)| value.to_vec()).expect("a region")
    };
    check_repaired(&[Problem::RegionDiffers], |raw| {
        let (name, mut value) = region(raw);
        value[7] ^= 1;
        raw.put("meta", &name, &value);
    });
    check_repaired(&[Problem::RegionsBroken], |raw| {
        let (name, value) = region(raw);
        raw.put("meta", &name, &value[1..]);
    });
    check_repaired(&[Problem::RegionsBroken], |raw| {
        raw.delete("meta", &[&b"region/"[..], &[0; 24]].concat());
    });
}

#[test]
fn totals_are_altered() {
    check_repaired(&[Problem::TotalsDiffer], |raw| {
        let mut totals = raw.get("meta", b"totals");
        totals[0] ^= 2;
        raw.put("meta", b"totals", &totals);
    });
    check_repaired(&[Problem::TotalsDiffer], |raw| raw.put("meta", b"totals", b""));
}

#[test]
fn what_is_kept_of_an_app_is_altered() {
    let name = [&b"app/"[..], &X.0.to_be_bytes()].concat();
    check_repaired(&[Problem::AppUnreadable], |raw| raw.put("meta", &name, b"x"));
    check_repaired(&[Problem::AppUnreadable], |raw| raw.delete("meta", &name));
}

#[test]
fn a_position_is_altered() {
    check_repaired(&[Problem::PositionUnreadable], |raw| {
        let (key, value) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &value[1..]);
    });
    check_repaired(&[Problem::PositionUnreadable], |raw| {
        let (key, _) = raw.entries("offsets").swap_remove(0);
        raw.put("offsets", &key, &(-1i64).to_be_bytes());
    });
}
