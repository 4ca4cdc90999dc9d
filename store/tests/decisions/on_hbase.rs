//! Tests on a real HBase: those of the attribution contract, and reads of rows that change meanwhile.

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
use adtrail_store::hbase::ledger::cells::{CellDelete, Cells as _, Columns, Put, Table, VALUE};
use adtrail_store::hbase::ledger::fact_record::decode;
use adtrail_store::hbase::read::rows::SharedRows;
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
use attribution::rules::row::{EventType, InstallType, Status};
use attribution::rules::winner::{Credit, Decision};
use attribution::worker::{Batch, Worker};
use support::facts::{DAY, Draft, activation, click, identified, millis};
use support::hbase::{create_tables, settings as hbase_settings};
use support::rules::{WIDE, X, rules, rules_with};
use support::run::{ON_HBASE, read, settings};

use crate::support;

/// Events at one millisecond; more than a scan prefetches.
const EVENTS: u64 = 8_000;
const ROW_BYTES: usize = 2_000;
const PID: Pid = Pid(1);
const TIME_MS: i64 = 1_773_144_000_000;

/// Returns a put of a long row of event `seq` at `ms`.
fn put((seq, ms): (u64, i64), spreadid: u32, revision: u32) -> Put {
    let (event_time, spreadid) = (millis(ms), SpreadId(spreadid));
    let key = RowKey { partition: 0, pid: PID, event_time, spreadid, seq };
    let fact = Fact::from(activation("a", event_time).prop("long", &"x".repeat(ROW_BYTES)));
    let Fact::Activation(fact) = fact else { panic!("the fact is an activation") };
    let credit = Credit::uncredited(Status::Organic, None);
    let decision = Decision { install_type: InstallType::Install, original: None, credit };
    let mut row = build_row::activation_row(&fact, &decision);
    row.revision = revision;
    let mut value = Vec::new();
    encode(&row, &mut value);
    let time = Some(event_time.millis() + u64::from(revision));
    Put { row: key.encode().to_vec(), column: VALUE.to_vec(), value, time, ttl_ms: None }
}

/// Moves every other event to a campaign that sorts before the current one, as a worker does.
fn correct(cluster: &mut Cluster) {
    let moved = || (0..EVENTS).step_by(2);
    let puts = moved().map(|seq| put((seq, TIME_MS), 1, 2)).collect();
    let deletion = |seq| {
        let Put { row, column, .. } = put((seq, TIME_MS), 5, 1);
        CellDelete { row, column, until: TIME_MS as u64 + 1 }
    };
    let deletions = moved().map(deletion).collect();
    cluster.put(Table::Events, puts).expect("HBase works");
    cluster.delete(Table::Events, deletions).expect("HBase works");
}

/// Splits the region between two rows of one millisecond. The split closes its scanners.
fn split_region(cluster: &Cluster) {
    let admin = cluster.client().admin();
    let table = tables::name(cluster.prefix(), Table::Events);
    let regions = cluster.wait(admin.regions(&table)).expect("HBase works");
    let middle = put((EVENTS / 2, TIME_MS), 5, 1).row;
    cluster.wait(admin.split(&regions[0], middle)).expect("the region is split");
}

/// Runs all tests of the contract in another process of this program, so that they share the tables.
#[test]
fn the_contract_holds() {
    let mut tests = Command::new(env::current_exe().expect("the path of this program is known"));
    tests.args(["contract::", "--test-threads=4"]).env(ON_HBASE, "1");
    let output = testbed::run(&mut tests, b"");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    let passed = stdout.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    let passed: u32 = passed
        .and_then(|passed| passed.parse().ok())
        .expect("the output has the number of passed tests");
    assert!(passed > 40, "{stdout}");
}

#[test]
fn rows_that_move_behind_a_lost_scanner_are_shown_once() {
    let mut cluster = create_tables("moments", 8);
    let mut all: Vec<Put> = (0..EVENTS).map(|seq| put((seq, TIME_MS), 5, 1)).collect();
    all.push(put((0, TIME_MS - 1), 5, 1));
    cluster.put(Table::Events, all).expect("HBase works");
    let times = EventTime::default()..EventTime::MAX;
    let mut rows = SharedRows::open(&cluster, PID, 0..1, times, None).expect("the scan succeeds");
    correct(&mut cluster);
    split_region(&cluster);
    let mut shown = vec![Vec::new(); EVENTS as usize];
    rows.advance();
    while let Some((key, _)) = rows.current().expect("the scan succeeds") {
        shown[key.seq as usize].push(key.spreadid.0);
        rows.advance();
    }
    let expected = |seq: usize| if seq.is_multiple_of(2) { [1] } else { [5] };
    let wrong: Vec<_> =
        shown.iter().enumerate().filter(|(seq, found)| found[..] != expected(*seq)[..]).collect();
    assert!(wrong.is_empty(), "{} wrong events, the first: {:?}", wrong.len(), wrong[0]);
}

/// Copies all columns of fact records, including rows that are still to be deleted.
#[test]
fn all_columns_of_fact_records_are_copied() {
    let policy = rules();
    let [from, to] = ["moved-from", "moved-to"].map(|prefix| {
        let hbase = hbase_settings(prefix);
        let settings = config::Store { hbase: Some(hbase.clone()), ..settings(Path::new("")) };
        init(&settings, &hbase, &policy).expect("the tables are created");
        (settings, hbase)
    });
    let store = Shared::open(&from.0, &from.1).expect("HBase is reachable");
    let at = ago(DAY);
    let keys: Vec<_> =
        (0..20).map(|number| fact_key(EventType::Activation, X, &format!("a{number}"))).collect();
    let activations = |at: EventTime| {
        let numbered =
            |number| activation(&format!("a{number}"), at).only("oaid", &format!("d{number}"));
        Batch { facts: identified((0..20).map(numbered)), ..Batch::default() }
    };
    // Each activation is replaced by an earlier message, which also replaces its row.
    for at in [at, at.minus(5_000)] {
        new_worker(&store, &policy).process(activations(at)).expect("HBase works");
    }
    let source = Source::open(&from.0).expect("the source opens");
    let mut target = Target::open(&to.0).expect("the target store is empty");
    target.fill(&source, |_| {}).expect("the store is copied");
    target.finish(&[], &policy).expect("the copy is completed");
    let rows = |hbase: &config::HBase| {
        let mut cluster = Cluster::connect(hbase, Timing::default()).expect("HBase is reachable");
        let keys: Vec<_> = keys.iter().map(key::record).collect();
        cluster.get_rows(Table::Facts(Family::Activation), &keys).expect("HBase works")
    };
    let source_rows = rows(&from.1);
    let pending_deletions = |columns: &Columns| {
        let value =
            &columns.iter().find(|(column, _)| column == VALUE).expect("the record exists").1;
        decode(Family::Activation, X, value).expect("a valid record").1.len()
    };
    let is_complete = |row: &Columns| row.len() == 2 && pending_deletions(row) == 1;
    assert!(source_rows.iter().all(is_complete), "{source_rows:?}");
    assert_eq!(rows(&to.1), source_rows);
}

/// Returns partition and time of each event's row.
fn locations(store: &Shared) -> BTreeMap<String, (u16, EventTime)> {
    let policy = rules();
    let app = policy.app(X).expect("the app is configured");
    let mut locations = BTreeMap::new();
    let visit = |key: &RowKey, value: &[u8]| {
        let row = RowView::decode(value).expect("a valid row");
        let location = (key.partition, key.event_time);
        let previous = locations.insert(row.text(TextCell::EventId).to_owned(), location);
        assert_eq!(previous, None, "two rows: {key:?}");
        ControlFlow::Continue(())
    };
    let (from, to) = (EventTime::default(), EventTime::MAX);
    store.reader().scan_rows(app, from, to, visit).expect("HBase works");
    locations
}

#[test]
fn an_event_stays_in_its_partition_when_the_fanout_changes() {
    let hbase = hbase_settings("fans");
    let policy = rules();
    let open = |fanout| {
        let apps = [(X, config::AppStore { retention_ms: None, fanout })].into();
        let settings =
            config::Store { hbase: Some(hbase.clone()), apps, ..settings(Path::new("")) };
        init(&settings, &hbase, &policy).expect("the tables are created");
        Shared::open(&settings, &hbase).expect("HBase is reachable")
    };
    let process = |store: &Shared, drafts: Vec<Draft>| {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        new_worker(store, &policy).process(batch).expect("HBase works")
    };
    let ids = |first: char| (0..16).map(move |number| format!("{first}{number}"));
    let at = ago(DAY);
    let activations = |first, time: EventTime| {
        ids(first).map(|id| activation(&id, time).only("oaid", &id)).collect::<Vec<_>>()
    };
    let clicks = |first| {
        let click =
            |id: String| click(&format!("c{id}"), at.minus(120_000)).campaign(1).only("oaid", &id);
        ids(first).map(click).collect::<Vec<_>>()
    };
    let moved = |before: &BTreeMap<_, (u16, _)>, after: &BTreeMap<_, (u16, _)>| {
        let stays = |(id, (partition, _)): &(&String, &(u16, _))| after[*id].0 == *partition;
        before.iter().filter(|location| !stays(location)).count()
    };
    let partitions = |locations: &BTreeMap<_, (u16, _)>| {
        locations.values().map(|(partition, _)| *partition).collect::<BTreeSet<_>>()
    };
    let store = open(None);
    process(&store, activations('a', at));
    let single = locations(&store);
    assert_eq!((single.len(), partitions(&single).len()), (16, 1));
    // Under a fanout over all partitions, earlier messages replace the events, which get new decisions.
    let store = open(Some(8));
    process(&store, clicks('a'));
    process(&store, activations('a', at.minus(500)));
    process(&store, activations('b', at));
    let spread = locations(&store);
    assert_eq!(moved(&single, &spread), 0, "{single:?} {spread:?}");
    let earlier = single.iter().filter(|(id, (_, time))| spread[*id].1 < *time).count();
    assert_eq!((spread.len(), earlier), (32, 16), "{spread:?}");
    assert!(partitions(&spread).len() > 4, "{spread:?}");
    // Finally without a fanout again.
    let store = open(None);
    process(&store, clicks('b'));
    process(&store, activations('d', at));
    let after = locations(&store);
    assert_eq!((moved(&spread, &after), after.len()), (0, 48));
}

/// Returns a new worker on the store with these settings.
fn new_worker(store: &Shared, policy: &Arc<Policy>) -> Worker<SharedLedger<Cluster>> {
    Worker::new(store.ledger(policy).expect("HBase works"), Arc::clone(policy))
}

/// Returns the time `ms` before now.
fn ago(ms: i64) -> EventTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    millis(now.as_millis() as i64 - ms)
}

/// Returns a policy with this correction horizon.
fn with_horizon(days: Option<u64>) -> Arc<Policy> {
    rules_with(|app| {
        app.fraud.clicks_per_device_max = 0;
        app.correction_horizon_ms = days.map(|days| days * DAY_MS);
    })
}

#[test]
fn expired_state_stays_expired_for_all_workers() {
    let hbase = hbase_settings("held");
    let settings = config::Store { hbase: Some(hbase.clone()), ..settings(Path::new("")) };
    // The tables keep cells forever, so that the test does not depend on HBase's own expiry.
    init(&settings, &hbase, &with_horizon(None)).expect("the tables are created");
    let store = Shared::open(&settings, &hbase).expect("HBase is reachable");
    let process = |worker: &mut Worker<SharedLedger<Cluster>>, drafts: Vec<Draft>| {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        worker.process(batch).expect("HBase works")
    };
    let mut worker = new_worker(&store, &with_horizon(None));
    // A campaign of the app has a window of 30 days: with a horizon of 7 days, and 30 days for lagging workers, all
    // of its touches have expired.
    let old = |id| click(id, ago(70 * DAY)).campaign(WIDE).only("oaid", id);
    process(&mut worker, vec![old("c1"), old("c2")]);
    let late = |id, device| activation(id, ago(60 * DAY)).only("oaid", device);
    process(&mut worker, vec![late("a1", "c1")]);
    let shortened = new_worker(&store, &with_horizon(Some(7)));
    assert_eq!(shortened.ledger().retained_floors(&with_horizon(Some(7))), []);
    // Many workers start at once and write the same floor.
    let floors = std::thread::scope(|scope| {
        let start = || new_worker(&store, &with_horizon(None)).ledger().expiry_floor(X);
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        starts
            .into_iter()
            .map(|start| start.join().expect("the thread does not panic"))
            .collect::<Vec<_>>()
    });
    assert!(floors[0].touches > ago(70 * DAY), "{floors:?}");
    assert!(floors.iter().all(|floor| *floor == floors[0]), "{floors:?}");
    assert_eq!(store.reader().expiry_floor(X), floors[0]);
    let mut worker = new_worker(&store, &with_horizon(None));
    assert_eq!(
        worker.ledger().retained_floors(&with_horizon(None))[0].settings,
        ["correction_horizon"]
    );
    let report = process(&mut worker, vec![late("a2", "c2"), old("c1")]);
    assert_eq!((report.touches.accepted, report.touches.redelivered), (1, 0));
    let rows: Vec<String> = read(&store.reader()).into_iter().map(|row| row.short).collect();
    let row_of = |id: &str| rows.iter().find(|row| row.starts_with(id)).map(|row| &row[3..]);
    assert_eq!(row_of("a1"), Some(" install attributed c1 (click by oaid)"));
    assert_eq!(row_of("a2"), Some(" install organic"));
}
