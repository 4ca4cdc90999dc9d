//! On a real HBase: the cases of the attribution contract, and rows that are read while they change.
#![cfg(test)]

#[path = "contract/main.rs"]
mod contract;

use adtrail_store::codec::row::encode;
use adtrail_store::hbase::cells::{Cells as _, Gone, Put, Table, VALUE};
use adtrail_store::hbase::cluster::Cluster;
use adtrail_store::hbase::rows::Rows;
use adtrail_store::hbase::tables;
use adtrail_store::key::RowKey;
use attribution::attribute::{Credit, Decision};
use attribution::compose;
use attribution::event::{EventTime, Fact, Pid, SpreadId};
use attribution::row::{InstallType, Status};
use contract::support::facts::{activation, millis};
use contract::support::hbase::tables_of;

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
    let mut row = compose::activation_row(&fact, &decision);
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

#[test]
fn rows_that_move_to_a_place_that_a_lost_scanner_has_passed_are_shown_once() {
    let mut cluster = tables_of("moments");
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
