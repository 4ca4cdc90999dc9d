//! Stores as each layout wrote them, kept as files: they open, show their rows, and go on.
//!
//! `kept/layout-N.tar.gz` is the directory of a store that the first build of layout N wrote, from
//! the facts of [`batches`], one batch after another, closed and opened again before each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::campaign_index::CreditedActivation;
use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use adtrail_store::layout::summary_counts::{Dimensions, SummaryKey, Totals};
use adtrail_store::maintenance::verify::{Options, verify};
use adtrail_store::memory::Memory;
use adtrail_store::reader::Reader;
use attribution::facts::event::{EventTime, SpreadId};
use attribution::ledger::{Facts, Ledger};
use support::facts::{
    DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified, impression,
};
use support::rules::{Y, apps, rules};
use support::run::{Shelf, fed, give, open, position, read, settings};
use support::show::Shown;
use tempfile::TempDir;

use crate::support;

/// One of 8 is on its way to the next.
const LAYOUTS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 9];
/// Since this one rows tell more of touch and activation.
const DETAILS_SINCE: u32 = 7;
/// Since this one, how far everything is consumed is kept.
const CONSUMED_SINCE: u32 = 3;
/// Rows that [`later`] changes or adds.
const REDECIDED: usize = 7;
/// Those before are made anew; the old one is left beside.
const WALKS_SINCE: u32 = 3;

fn device(number: i64) -> String {
    format!("{number:08x}-1111-4222-8333-444444444444")
}

/// What the kept stores were made of. Never changed: the files are not made again.
fn batches() -> [Vec<Draft>; 3] {
    let [mut first, mut second, mut late] = [const { Vec::new() }; 3];
    for n in 0..40i64 {
        let at = |ms: i64| a_and(n * 7 * MINUTE + ms);
        let on = |draft: Draft| draft.only("oaid", &device(n));
        if n % 3 != 0 {
            let draft = click(&format!("c{}x{n}", n % 5 + 1), at(-HOUR));
            first.push(on(draft).site("site, with \"quotes\""));
        }
        if n % 4 == 0 {
            first.push(on(impression(&format!("i{}x{n}", n % 7 + 1), at(-2 * HOUR))));
        }
        let draft = on(activation(&format!("a{n}"), at(0)));
        second.push(draft.ip("203.0.113.9").prop("channel", "\u{5e7f}\u{544a}"));
        if n % 2 == 0 {
            second.push(on(effect(&format!("e{n}"), at(HOUR))).revenue("9.99", "CNY"));
        }
        if n % 10 == 0 {
            second.push(on(activation(&format!("again{n}"), at(2 * DAY))));
            second.push(activation(&format!("y{n}"), at(0)).of_app_y());
        }
        if n % 8 == 0 {
            let placed = click(&format!("c4place{n}"), at(-HOUR)).anyone();
            first.push(placed.ip(&format!("198.51.100.{n}")).ua("Mozilla/5.0"));
        }
        if n % 9 == 0 {
            late.push(on(click(&format!("c9late{n}"), at(-MINUTE))));
        }
    }
    [first, second, late]
}

/// What comes after the store was opened: each depends on what it holds.
fn later() -> Vec<Draft> {
    let on = |draft: Draft, n| draft.only("oaid", &device(n));
    let at = |n: i64, ms: i64| a_and(n * 7 * MINUTE + ms);
    vec![
        // Moves a credit, and the effect's with it.
        on(click("c2later", at(6, -2 * MINUTE)), 6),
        // Was credited to nobody.
        on(click("c3later", at(3, -2 * MINUTE)), 3),
        on(effect("e3", at(3, HOUR)), 3),
        // Follows an activation of before.
        on(activation("again4", at(4, 3 * DAY)), 4),
        on(activation("double5", at(5, 1_000)), 5),
        // Comes once more.
        on(activation("a7", at(7, 0)), 7).ip("203.0.113.9").prop("channel", "\u{5e7f}\u{544a}"),
        // Is known by its address alone, as those before are by theirs.
        activation("by-address", at(8, 0)).anyone().ip("198.51.100.8").ua("Mozilla/5.0"),
    ]
}

/// The kept store of a layout, in a folder of its own.
fn kept(layout: u32) -> TempDir {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kept/layout-{layout}.tar.gz"));
    let store = dir.path().join("store");
    std::fs::create_dir(&store).expect("a folder");
    let tar = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&store).status();
    assert!(tar.expect("tar is there").success(), "{}", file.display());
    dir
}

fn figures(store: &Embedded) -> (u64, u64) {
    let regions = store.reader().regions().expect("its own");
    let rows: u64 = regions.iter().map(|region| region.figures.rows).sum();
    (rows, store.status_counts().values().sum())
}

/// Rows as a store of a layout shows them that were not decided on since.
fn told(rows: &[Shown], layout: u32) -> Vec<&str> {
    let is_made_anew = layout < WALKS_SINCE;
    let tells_all = is_made_anew || layout >= DETAILS_SINCE;
    rows.iter().map(|row| if tells_all { &*row.whole } else { &*row.short_form }).collect()
}

/// What is told of rows is what they say.
fn check_told(reader: &Reader, layout: u32) {
    let all = (EventTime::default(), EventTime::END);
    let view = reader.view();
    for app in apps() {
        let (mut counts, mut told) = (BTreeMap::new(), BTreeMap::new());
        let (mut credited, mut brought) = (0, 0);
        let visit = |key: &RowKey, value: &[u8]| {
            let row = RowView::decode(value).expect("a row");
            let of = SummaryKey::new(key, Dimensions::of_view(&row)).encode();
            let count: &mut Totals = counts.entry(of).or_default();
            count.add(&Totals::row(row.text(TextCell::Revenue)));
            credited += usize::from(CreditedActivation::has(row.event_type, row.status));
            ControlFlow::Continue(())
        };
        reader.scan_rows(&app, all.0, all.1, visit).expect("a scan");
        view.counts(app.pid, all, |counted, count| {
            told.insert(counted.encode(), *count);
            ControlFlow::Continue(())
        })
        .expect("counts");
        assert_eq!(told, counts, "layout {layout}");
        for spreadid in 0..1_000 {
            let found = view.brought(app.pid, SpreadId(spreadid), all, None, 1_000);
            brought += found.expect("what was brought").len();
        }
        assert_eq!(brought, credited, "layout {layout}");
        assert!(!counts.is_empty());
    }
}

#[test]
fn a_store_of_each_layout_opens_and_goes_on() {
    let before = batches().map(identified);
    let mut model = fed(Memory::default(), &rules(), before.to_vec());
    let rows = model.ledger().shown();
    assert_eq!(rows.len(), 68);
    give(&mut model, identified(later()));
    let rows_later = model.ledger().shown();
    assert_ne!(rows, rows_later);
    for layout in LAYOUTS {
        let dir = kept(layout);
        let path = dir.path().join("store");
        let mut store = open(&path, &rules());
        assert_eq!(told(&store.shown(), layout), told(&rows, layout), "layout {layout}");
        assert_eq!(figures(&store), (68, 68), "layout {layout}");
        check_told(&store.reader(), layout);
        assert_eq!(store.positions().unwrap(), [position("adtrail.clicks", 3, 102)]);
        let consumed = (layout >= CONSUMED_SINCE).then(|| a_and(-DAY + 2));
        assert_eq!(store.consumed_until(), consumed, "layout {layout}");
        drop(store);
        let mut worker = fed(open(&path, &rules()), &rules(), vec![identified(later())]);
        let shown = worker.ledger().shown();
        assert_eq!(told(&shown, layout), told(&rows_later, layout), "layout {layout}");
        assert_eq!(figures(worker.ledger()).0, rows_later.len() as u64, "layout {layout}");
        check_told(&worker.ledger().reader(), layout);
        // Once more the same changes nothing.
        give(&mut worker, before.concat());
        assert_eq!(worker.ledger().shown(), shown, "layout {layout}");
        // Whatever is decided on tells all that it can.
        let is_again = |row: &&Shown| rows_later.contains(row) && !rows.contains(row);
        assert_eq!(shown.iter().filter(is_again).count(), REDECIDED, "layout {layout}");
        drop(worker);
        let beside = open_for_reading(&settings(&path)).expect("the store opens");
        assert_eq!(read(&beside), shown, "layout {layout}");
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        left.retain(|entry| entry.as_ref().unwrap().file_name() != "store");
        let old = layout < WALKS_SINCE;
        assert_eq!(left.len(), usize::from(old), "{left:?}");
        assert_eq!(dir.path().join("store-old-layout/CURRENT").exists(), old, "layout {layout}");
    }
}

/// Older rows and decisions are held against fresh ones as of their layout.
#[test]
fn a_store_of_a_past_layout_that_goes_on_is_whole() {
    for layout in LAYOUTS {
        let dir = kept(layout);
        let path = dir.path().join("store");
        let check = |when: &str| {
            let options = Options { examples_max: 10, have_settings_changed: false };
            let report = verify(&settings(&path), &rules(), &options, &mut |_| ());
            let report = report.expect("a store to look at");
            assert!(report.is_whole(), "layout {layout}, {when}: {:?}", report.examples);
        };
        drop(open(&path, &rules()));
        check("opened");
        drop(fed(open(&path, &rules()), &rules(), vec![identified(later())]));
        check("gone on");
    }
}

#[test]
fn a_store_of_a_past_layout_is_not_changed_by_who_only_reads() {
    for layout in LAYOUTS.into_iter().filter(|layout| *layout < 9) {
        let dir = kept(layout);
        let settings = settings(&dir.path().join("store"));
        let error = open_for_reading(&settings).expect_err("a store of a past layout");
        let is_told = matches!(error, StoreError::OldVersion { found, .. } if found == layout);
        assert!(is_told, "{layout}: {error}");
    }
}

#[test]
fn a_store_that_is_made_anew_keeps_its_place_until_it_is_whole() {
    let dir = kept(1);
    let path = dir.path().join("store");
    // What a process left that ended midway.
    let [new, old] = ["store-new-layout", "store-old-layout"].map(|name| dir.path().join(name));
    std::fs::create_dir(&new).unwrap();
    std::fs::write(new.join("CURRENT"), "half of it").unwrap();
    let rows = open(&path, &rules()).shown();
    assert_eq!(rows.len(), 68);
    // Between the two moves.
    std::fs::rename(&path, &new).unwrap();
    assert_eq!(open(&path, &rules()).shown(), rows);
    assert!(!new.exists() && old.exists());
}

#[test]
fn what_stands_where_the_old_one_goes_is_left_alone() {
    let dir = kept(1);
    let old = dir.path().join("store-old-layout");
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("mine"), "of somebody").unwrap();
    let path = dir.path().join("store");
    let error = Embedded::open(&settings(&path), &rules()).expect_err("something is there");
    assert!(error.to_string().contains("store-old-layout: it is there already"), "{error}");
    assert_eq!(std::fs::read(old.join("mine")).unwrap(), b"of somebody");
    std::fs::remove_dir_all(&old).unwrap();
    assert_eq!(open(&path, &rules()).shown().len(), 68, "nothing was changed");
}

#[test]
fn events_of_an_app_that_is_not_in_the_settings_are_not_left_out() {
    let dir = kept(1);
    let path = dir.path().join("store");
    let [x, _] = apps();
    let policy = attribution::rules::policy::Policy::new(vec![x], Vec::new());
    let error = Embedded::open(&settings(&path), &policy).expect_err("an app is missing");
    assert!(matches!(error, StoreError::UnknownApp { pid, .. } if pid == Y.0), "{error}");
    let shown = open(&path, &rules()).shown();
    assert_eq!(shown.len(), 68, "nothing was changed");
}
