//! On a real HBase: the cases of the attribution contract, and rows that are read while they change.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use adtrail_store::Timing;
use adtrail_store::hbase::cluster::Cluster;
use adtrail_store::hbase::ledger::SharedLedger;
use adtrail_store::hbase::ledger::cells::{Cells as _, Columns, Gone, Put, Table, VALUE};
use adtrail_store::hbase::ledger::fact_record::decode;
use adtrail_store::hbase::read::rows::Rows;
use adtrail_store::hbase::schema::tables;
use adtrail_store::hbase::{Shared, init};
use adtrail_store::layout::codec::row::{RowView, TextCell, encode};
use adtrail_store::layout::key::{self, RowKey};
use adtrail_store::maintenance::copy_store::{Source, Target};
use attribution::facts::event::{EventTime, Fact, Family, Pid, SpreadId};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::Facts as _;
use attribution::rules::build_row;
use attribution::rules::policy::{DAY_MS, Policy};
use attribution::rules::row::{InstallType, Status};
use attribution::rules::winner::{Credit, Decision};
use attribution::worker::{Batch, Worker};
use support::facts::{DAY, Draft, activation, click, identified, millis};
use support::hbase::{settings as hbase_settings, tables_of};
use support::rules::{WIDE, X, rules, rules_with};
use support::run::{ON_HBASE, read, settings};

use crate::support;

/// Of one millisecond, in more answers than a scan reads ahead.
const EVENTS: u64 = 8_000;
const BYTES: usize = 2_000;
const PID: Pid = Pid(1);
const MOMENT: i64 = 1_773_144_000_000;

/// A long row of the event, of a campaign and a revision.
fn put((seq, ms): (u64, i64), spreadid: u32, revision: u32) -> Put {
    let (event_time, spreadid) = (millis(ms), SpreadId(spreadid));
    let key = RowKey { partition: 0, pid: PID, event_time, spreadid, seq };
    let fact = Fact::from(activation("a", event_time).prop("long", &"x".repeat(BYTES)));
    let Fact::Activation(fact) = fact else { panic!("an activation is one") };
    let credit = Credit::nobody(Status::Organic, None);
    let decision = Decision { install_type: InstallType::Install, original: None, credit };
    let mut row = build_row::activation_row(&fact, &decision);
    row.revision = revision;
    let mut value = Vec::new();
    encode(&row, &mut value);
    let time = Some(event_time.millis() + u64::from(revision));
    Put { row: key.encode().to_vec(), column: VALUE.to_vec(), value, time, ttl_ms: None }
}

/// Moves every other event to a campaign that stands before where they are, as a worker does it.
fn correct(cluster: &mut Cluster) {
    let some = || (0..EVENTS).step_by(2);
    let puts = some().map(|seq| put((seq, MOMENT), 1, 2)).collect();
    let gone = |seq| {
        let Put { row, column, .. } = put((seq, MOMENT), 5, 1);
        Gone { row, column, until: MOMENT as u64 + 1 }
    };
    let gone = some().map(gone).collect();
    cluster.put(Table::Events, puts).expect("hbase works");
    cluster.delete(Table::Events, gone).expect("hbase works");
}

/// Has the region of the rows split in the middle of the millisecond: its scanners end.
fn split_region(cluster: &Cluster) {
    let admin = cluster.client().admin();
    let table = tables::name(cluster.prefix(), Table::Events);
    let regions = cluster.wait(admin.regions(&table)).expect("the regions");
    let middle = put((EVENTS / 2, MOMENT), 5, 1).row;
    cluster.wait(admin.split(&regions[0], middle)).expect("it is split");
}

/// Each case of the contract, by this program once more: one process makes the tables, and all cases share them.
#[test]
fn the_contract_holds() {
    let mut cases = Command::new(env::current_exe().expect("a program has a path"));
    cases.args(["contract::", "--test-threads=4"]).env(ON_HBASE, "1");
    let output = testbed::run(&mut cases, b"");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let passed = said.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    let passed: u32 = passed.and_then(|passed| passed.parse().ok()).expect("a count of tests");
    assert!(passed > 150, "{said}");
}

#[test]
fn rows_that_move_to_a_place_that_a_lost_scanner_has_passed_are_shown_once() {
    let mut cluster = tables_of("moments", 8);
    let mut all: Vec<Put> = (0..EVENTS).map(|seq| put((seq, MOMENT), 5, 1)).collect();
    all.push(put((0, MOMENT - 1), 5, 1));
    cluster.put(Table::Events, all).expect("hbase works");
    let times = (EventTime::default(), EventTime::MAX);
    let mut rows = Rows::open(&cluster, PID, 0..1, times, None).expect("a scan");
    correct(&mut cluster);
    split_region(&cluster);
    let mut shown = vec![Vec::new(); EVENTS as usize];
    rows.advance();
    while let Some((key, _)) = rows.current().expect("a scan") {
        shown[key.seq as usize].push(key.spreadid.0);
        rows.advance();
    }
    let expected = |seq: usize| if seq.is_multiple_of(2) { [1] } else { [5] };
    let wrong: Vec<_> =
        shown.iter().enumerate().filter(|(seq, of)| of[..] != expected(*seq)[..]).collect();
    assert!(wrong.is_empty(), "{} events, the first: {:?}", wrong.len(), wrong[0]);
}

/// What stands in the rows of all homes of activations is the same in the copy, with what is yet to be ended.
#[test]
fn what_stands_beside_homes_moves_with_them() {
    let policy = rules();
    let [from, to] = ["moved-from", "moved-to"].map(|prefix| {
        let hbase = hbase_settings(prefix);
        let settings = config::Store { hbase: Some(hbase.clone()), ..settings(Path::new("")) };
        init(&settings, &hbase, &policy).expect("the tables are made");
        (settings, hbase)
    });
    let store = Shared::open(&from.0, &from.1).expect("hbase answers");
    let at = ago(DAY);
    let keys: Vec<_> =
        (0..20).map(|number| fact_key(Family::Activation, X, &format!("a{number}"))).collect();
    let activations = |at: EventTime| {
        let one =
            |number| activation(&format!("a{number}"), at).only("oaid", &format!("d{number}"));
        Batch { facts: identified((0..20).map(one)), ..Batch::default() }
    };
    // Each is replaced by an earlier one, and so is its row.
    for at in [at, at.minus(5_000)] {
        started(&store, &policy).process(activations(at)).expect("hbase works");
    }
    let source = Source::open(&from.0).expect("a store");
    let mut target = Target::open(&to.0).expect("an empty store");
    target.fill(&source, |_| {}).expect("it is moved");
    target.finish(&[], &policy).expect("it is moved");
    let rows = |hbase: &config::HBase| {
        let mut cluster = Cluster::connect(hbase, Timing::default()).expect("hbase answers");
        let keys: Vec<_> = keys.iter().map(key::record).collect();
        cluster.get_rows(Table::Facts(Family::Activation), &keys).expect("hbase works")
    };
    let stands = rows(&from.1);
    let gone = |columns: &Columns| {
        let value = &columns.iter().find(|(column, _)| column == VALUE).expect("a home").1;
        decode(Family::Activation, X, value).expect("a home").1.len()
    };
    assert!(stands.iter().all(|row| row.len() == 2 && gone(row) == 1), "{stands:?}");
    assert_eq!(rows(&to.1), stands);
}

/// The partition and the time of each event's row.
fn places(store: &Shared) -> BTreeMap<String, (u16, EventTime)> {
    let policy = rules();
    let app = policy.app(X).expect("an app");
    let mut places = BTreeMap::new();
    let visit = |key: &RowKey, value: &[u8]| {
        let row = RowView::decode(value).expect("a row that can be read");
        let place = (key.partition, key.event_time);
        let shown_before = places.insert(row.text(TextCell::EventId).to_owned(), place);
        assert_eq!(shown_before, None, "shown twice: {key:?}");
        ControlFlow::Continue(())
    };
    let (from, to) = (EventTime::default(), EventTime::MAX);
    store.reader().scan_rows(app, from, to, visit).expect("hbase works");
    places
}

#[test]
fn an_event_stays_in_its_partition_whatever_the_fan_is_later() {
    let hbase = hbase_settings("fans");
    let policy = rules();
    let opened = |fanout| {
        let own = config::AppStore { retention_ms: None, fanout };
        let apps = [(X, own)].into();
        let settings =
            config::Store { hbase: Some(hbase.clone()), apps, ..settings(Path::new("")) };
        init(&settings, &hbase, &policy).expect("the tables are made");
        Shared::open(&settings, &hbase).expect("hbase answers")
    };
    let give = |store: &Shared, drafts: Vec<Draft>| {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        started(store, &policy).process(batch).expect("hbase works")
    };
    let some = |first: char| (0..16).map(move |number| format!("{first}{number}"));
    let at = ago(DAY);
    let activations = |first, time: EventTime| {
        some(first).map(|id| activation(&id, time).only("oaid", &id)).collect::<Vec<_>>()
    };
    let clicks = |first| {
        let click =
            |id: String| click(&format!("c{id}"), at.minus(120_000)).campaign(1).only("oaid", &id);
        some(first).map(click).collect::<Vec<_>>()
    };
    let moved = |before: &BTreeMap<_, (u16, _)>, after: &BTreeMap<_, (u16, _)>| {
        let stays = |(id, (place, _)): &(&String, &(u16, _))| after[*id].0 == *place;
        before.iter().filter(|one| !stays(one)).count()
    };
    let partitions =
        |places: &BTreeMap<_, (u16, _)>| places.values().map(|one| one.0).collect::<BTreeSet<_>>();
    let store = opened(None);
    give(&store, activations('a', at));
    let one = places(&store);
    assert_eq!((one.len(), partitions(&one).len()), (16, 1));
    // Spread over all: those of before are decided anew, and some are at another time by now.
    let store = opened(Some(8));
    give(&store, clicks('a'));
    give(&store, activations('a', at.minus(500)));
    give(&store, activations('b', at));
    let spread = places(&store);
    assert_eq!(moved(&one, &spread), 0, "{one:?} {spread:?}");
    let earlier = one.iter().filter(|(id, (_, time))| spread[*id].1 < *time).count();
    assert_eq!((spread.len(), earlier), (32, 16), "{spread:?}");
    assert!(partitions(&spread).len() > 4, "{spread:?}");
    // And not at all again.
    let store = opened(None);
    give(&store, clicks('b'));
    give(&store, activations('d', at));
    let after = places(&store);
    assert_eq!((moved(&spread, &after), after.len()), (0, 48));
}

/// A worker of the store with these settings, that has just started.
fn started(store: &Shared, policy: &Arc<Policy>) -> Worker<SharedLedger<Cluster>> {
    Worker::new(store.ledger(policy).expect("hbase works"), Arc::clone(policy))
}

/// How long before now.
fn ago(ms: i64) -> EventTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    millis(now.as_millis() as i64 - ms)
}

/// Facts may be late by so many days, and touches count for a week.
fn late_by(days: Option<u64>) -> Arc<Policy> {
    rules_with(|app| {
        app.fraud.clicks_per_device_max = 0;
        app.correction_horizon_ms = days.map(|days| days * DAY_MS);
    })
}

#[test]
fn what_has_expired_stays_so_for_all_workers() {
    let hbase = hbase_settings("held");
    let settings = config::Store { hbase: Some(hbase.clone()), ..settings(Path::new("")) };
    // For ever: nothing may rest upon what HBase lets go.
    init(&settings, &hbase, &late_by(None)).expect("the tables are made");
    let store = Shared::open(&settings, &hbase).expect("hbase answers");
    let give = |worker: &mut Worker<SharedLedger<Cluster>>, drafts: Vec<Draft>| {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        worker.process(batch).expect("hbase works")
    };
    let mut worker = started(&store, &late_by(None));
    // A campaign of the app has a window of 30 days: by a horizon of 7, and 30 for who is behind, all this
    // has expired.
    let old = |id| click(id, ago(70 * DAY)).campaign(WIDE).only("oaid", id);
    give(&mut worker, vec![old("c1"), old("c2")]);
    let late = |id, device| activation(id, ago(60 * DAY)).only("oaid", device);
    give(&mut worker, vec![late("a1", "c1")]);
    let short = started(&store, &late_by(Some(7)));
    assert_eq!(short.ledger().held_back(&late_by(Some(7))), []);
    // Many start at once, and note the same.
    let held = std::thread::scope(|scope| {
        let start = || started(&store, &late_by(None)).ledger().expiry_floor(X);
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().expect("a start")).collect::<Vec<_>>()
    });
    assert!(held[0].touches > ago(70 * DAY), "{held:?}");
    assert!(held.iter().all(|one| *one == held[0]), "{held:?}");
    assert_eq!(store.reader().expiry_floor(X), held[0]);
    let mut worker = started(&store, &late_by(None));
    assert_eq!(worker.ledger().held_back(&late_by(None))[0].settings, ["correction_horizon"]);
    let report = give(&mut worker, vec![late("a2", "c2"), old("c1")]);
    assert_eq!((report.touches.accepted, report.touches.redelivered), (1, 0));
    let rows: Vec<String> = read(&store.reader()).into_iter().map(|row| row.short).collect();
    let of = |id: &str| rows.iter().find(|row| row.starts_with(id)).map(|row| &row[3..]);
    assert_eq!(of("a1"), Some(" install attributed c1 (click by oaid)"));
    assert_eq!(of("a2"), Some(" install organic"));
}
