//! What a store in HBase says of itself, in its table `meta`.
//!
//! | row | value |
//! |---|---|
//! | `store` | layout u32 · partitions u16 |
//! | `copying` | there while another store is moved here; none opens then |
//! | `app/` and pid u32 | as embedded |
//! | `named/` and pid u32 | the app's key |
//! | `expiring/` and pid u32 | as embedded |
//! | `complete/`, topic, `/` and partition u32 | all that Kafka received before is in, ms u64 |
//! | `partitions/` and topic | how many the topic has, u32 |

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use hbase_client::{CheckAndMutate, Delete, Get, Put, Row, Scan};

use super::tables;
use crate::StoreError;
use crate::apps::names::{self, Names};
use crate::apps::spread::App;
use crate::clock::now;
use crate::expiry::floor::{self, ExpiryRecord, ExpiryRecords};
use crate::expiry::{Expiry, Kept};
use crate::hbase::cluster::{Cluster, FAMILY};
use crate::hbase::ledger::cells::VALUE;
use crate::layout::key;

/// The version of all tables together. Lower ones are those of development versions.
const LAYOUT_VERSION: u32 = 3;

const STORE: &[u8] = b"store";
const COPYING: &[u8] = b"copying";
const APP: &[u8] = b"app/";
const NAMED: &[u8] = b"named/";
const EXPIRING: &[u8] = b"expiring/";
const COMPLETE: &[u8] = b"complete/";
const PARTITIONS: &[u8] = b"partitions/";
/// What was tried so often against others is given up.
const TRIES_MAX: u32 = 20;

/// What was fixed when the store was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    layout: u32,
    partitions: u16,
}

impl Meta {
    fn encode(self) -> Vec<u8> {
        [&self.layout.to_be_bytes()[..], &self.partitions.to_be_bytes()].concat()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (layout, partitions) = value.split_first_chunk()?;
        let partitions = u16::from_be_bytes(partitions.try_into().ok()?);
        Some(Self { layout: u32::from_be_bytes(*layout), partitions })
    }
}

/// What stands there; `None` where nothing does, or there is no such table.
pub fn load(cluster: &Cluster) -> Result<Option<Meta>, StoreError> {
    let found = match get(cluster, STORE) {
        Err(StoreError::HBase(hbase_client::Error::NoTable { .. })) => None,
        found => found?,
    };
    let Some(value) = found else { return Ok(None) };
    Meta::decode(&value).map(Some).ok_or_else(|| StoreError::corrupt("what the store is"))
}

/// That the store is one that this adtrail can use by these settings.
pub(crate) fn require(cluster: &Cluster, configured: u16) -> Result<(), StoreError> {
    let prefix = || cluster.prefix().to_owned();
    let Some(Meta { layout, partitions }) = load(cluster)? else {
        return Err(StoreError::NotMade { prefix: prefix() });
    };
    if layout != LAYOUT_VERSION {
        let place = format!("the tables {}_…", cluster.prefix());
        return Err(StoreError::OtherLayout { place, found: layout, expected: LAYOUT_VERSION });
    }
    if partitions != configured {
        let found = partitions;
        return Err(StoreError::OtherPartitions { prefix: prefix(), found, configured });
    }
    Ok(())
}

/// Notes it where nothing stands yet.
pub fn create(cluster: &Cluster, partitions: u16) -> Result<(), StoreError> {
    let meta = Meta { layout: LAYOUT_VERSION, partitions };
    // Where another was first, what it has put is looked at like any other.
    put_where(cluster, STORE, None, meta.encode()).map(drop)
}

pub fn app(cluster: &Cluster, pid: Pid) -> Result<Option<App>, StoreError> {
    get(cluster, &app_row(pid))?.map(|value| decode_app(&value)).transpose()
}

pub fn apps(cluster: &Cluster) -> Result<BTreeMap<Pid, App>, StoreError> {
    let mut apps = BTreeMap::new();
    for row in rows(cluster, APP)? {
        let pid = row.key().get(APP.len()..).and_then(|pid| pid.try_into().ok());
        let pid = pid.map(u32::from_be_bytes).ok_or_else(|| StoreError::corrupt("an app"))?;
        apps.insert(Pid(pid), decode_app(&value(&row))?);
    }
    Ok(apps)
}

pub fn put_app(cluster: &Cluster, pid: Pid, app: &App) -> Result<(), StoreError> {
    put(cluster, app_row(pid), app.encode())
}

/// Whether another store is being moved here, or was begun to be.
pub fn is_copying(cluster: &Cluster) -> Result<bool, StoreError> {
    get(cluster, COPYING).map(|value| value.is_some())
}

pub fn begin_copying(cluster: &Cluster) -> Result<(), StoreError> {
    put(cluster, COPYING.to_vec(), vec![1])
}

pub fn end_copying(cluster: &Cluster) -> Result<(), StoreError> {
    Ok(cluster.wait(table(cluster)?.mutate(Delete::new(COPYING.to_vec())))?)
}

/// Notes the apps of the settings that are not there, and how far they are to be spread, before a row is
/// written there. Gives them as this process is to write them.
pub fn enroll(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<BTreeMap<Pid, App>, StoreError> {
    let names = names(cluster)?;
    for (pid, key) in names::require(&names, policy)? {
        let had = names.get(&pid).map(|had| had.as_bytes().to_vec());
        put_where(cluster, &name_row(pid), had, key.into())?;
    }
    // Another worker may have been first, and with other settings.
    names::require(&self::names(cluster)?, policy)?;
    let mut apps = BTreeMap::new();
    for app in policy.apps() {
        let fanout = settings.apps.get(&app.pid).and_then(|own| own.fanout).unwrap_or(1);
        let fanout_bits = fanout.checked_ilog2().unwrap_or(0) as u8;
        let base = key::partition(&app.key, settings.partitions);
        apps.insert(app.pid, enroll_app(cluster, (app.pid, base), fanout_bits)?);
    }
    Ok(apps)
}

fn enroll_app(
    cluster: &Cluster,
    (pid, base): (Pid, u16),
    fanout_bits: u8,
) -> Result<App, StoreError> {
    for _ in 0..TRIES_MAX {
        let stands = get(cluster, &app_row(pid))?;
        let mut app = match &stands {
            Some(value) => decode_app(value)?,
            None => App::new(base),
        };
        app.spread(fanout_bits);
        let value = app.encode();
        if stands.as_ref() == Some(&value) || put_where(cluster, &app_row(pid), stands, value)? {
            return Ok(app);
        }
    }
    Err(StoreError::Contended { what: format!("app of pid {pid}", pid = pid.0) })
}

/// Notes the settings by which state expires, and holds what expired by those before them.
pub fn note(
    cluster: &Cluster,
    expiry: &Expiry,
    until: EventTime,
) -> Result<ExpiryRecords, StoreError> {
    let stands = noted(cluster)?;
    let pids: Vec<Pid> = floor::under(&stands, expiry, Some(until)).into_keys().collect();
    let note = |pid: Pid| Ok((pid, note_app(cluster, pid, expiry.kept(pid), until)?));
    pids.into_iter().map(note).collect()
}

fn note_app(
    cluster: &Cluster,
    pid: Pid,
    kept: Option<Kept>,
    until: EventTime,
) -> Result<ExpiryRecord, StoreError> {
    let row = pid_row(EXPIRING, pid);
    for _ in 0..TRIES_MAX {
        let stands = get(cluster, &row)?;
        let before = stands.as_ref().map(|value| decode_noted(pid, value)).transpose()?;
        let before = before.unwrap_or_default();
        let noted = before.under(kept, Some(until));
        if noted == before || put_where(cluster, &row, stands, noted.encode())? {
            return Ok(noted);
        }
    }
    Err(StoreError::Contended { what: format!("state of pid {pid}", pid = pid.0) })
}

pub fn noted(cluster: &Cluster) -> Result<ExpiryRecords, StoreError> {
    let of_row = |row: &Row| {
        let pid = row.key().get(EXPIRING.len()..).unwrap_or_default();
        floor::decode(pid, &value(row), now())
    };
    rows(cluster, EXPIRING)?.iter().map(of_row).collect()
}

pub fn noted_of(cluster: &Cluster, pid: Pid) -> Result<ExpiryRecord, StoreError> {
    let value = get(cluster, &pid_row(EXPIRING, pid))?;
    Ok(value.map(|value| decode_noted(pid, &value)).transpose()?.unwrap_or_default())
}

pub fn put_noted(cluster: &Cluster, pid: Pid, noted: &ExpiryRecord) -> Result<(), StoreError> {
    put(cluster, pid_row(EXPIRING, pid), noted.encode())
}

fn decode_noted(pid: Pid, value: &[u8]) -> Result<ExpiryRecord, StoreError> {
    floor::decode(&pid.0.to_be_bytes(), value, now()).map(|(_, noted)| noted)
}

/// How far each partition of a topic is in, as the worker that reads it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete {
    pub topic: Box<str>,
    pub partition: i32,
    pub until: EventTime,
}

/// Notes how far partitions are in, and how many there are of each topic.
pub fn put_complete(
    cluster: &Cluster,
    complete: &[Complete],
    counts: &[(Box<str>, usize)],
) -> Result<(), StoreError> {
    let put = |row: Vec<u8>, value: Vec<u8>| Put::new(row).cell(FAMILY, VALUE, value).into();
    let times = complete.iter().map(|one| {
        let partition = one.partition.to_be_bytes();
        let row = [COMPLETE, one.topic.as_bytes(), b"/", &partition].concat();
        put(row, one.until.millis().to_be_bytes().to_vec())
    });
    let counts = counts.iter().map(|(topic, count)| {
        let count = u32::try_from(*count).unwrap_or(u32::MAX);
        put([PARTITIONS, topic.as_bytes()].concat(), count.to_be_bytes().to_vec())
    });
    let puts = times.chain(counts).collect();
    for outcome in cluster.wait(table(cluster)?.mutate_many(puts)) {
        outcome?;
    }
    Ok(())
}

/// All that Kafka received in these topics before this is in: the least over all partitions; `None` while
/// that is not known of one of them.
pub fn complete_until(cluster: &Cluster, topics: &[&str]) -> Result<Option<EventTime>, StoreError> {
    let mut least: Option<EventTime> = None;
    for topic in topics {
        let count = get(cluster, &[PARTITIONS, topic.as_bytes()].concat())?;
        let count = count.and_then(|count| count.try_into().ok()).map(u32::from_be_bytes);
        let prefix = [COMPLETE, topic.as_bytes(), b"/"].concat();
        let times: Vec<EventTime> =
            rows(cluster, &prefix)?.iter().filter_map(|row| time(&value(row))).collect();
        if count.is_none_or(|count| times.len() < count as usize) {
            return Ok(None);
        }
        least = least.into_iter().chain(times).min();
    }
    Ok(least)
}

fn time(value: &[u8]) -> Option<EventTime> {
    let millis = value.try_into().map(u64::from_be_bytes).ok()?;
    i64::try_from(millis).ok().and_then(EventTime::from_millis)
}

fn rows(cluster: &Cluster, prefix: &[u8]) -> Result<Vec<Row>, StoreError> {
    let table = table(cluster)?;
    let mut scan = cluster.wait(async { table.scan(Scan::prefix(prefix.to_vec())) });
    let mut rows = Vec::new();
    while let Some(batch) = cluster.wait(scan.next_batch()) {
        rows.extend(batch?);
    }
    Ok(rows)
}

pub fn names(cluster: &Cluster) -> Result<Names, StoreError> {
    let name =
        |row: &Row| names::decode(row.key().get(NAMED.len()..).unwrap_or_default(), &value(row));
    rows(cluster, NAMED)?.iter().map(name).collect()
}

pub fn put_name(cluster: &Cluster, pid: Pid, key: &str) -> Result<(), StoreError> {
    put(cluster, name_row(pid), key.into())
}

fn name_row(pid: Pid) -> Vec<u8> {
    pid_row(NAMED, pid)
}

fn app_row(pid: Pid) -> Vec<u8> {
    pid_row(APP, pid)
}

fn pid_row(prefix: &[u8], pid: Pid) -> Vec<u8> {
    [prefix, &pid.0.to_be_bytes()].concat()
}

fn decode_app(value: &[u8]) -> Result<App, StoreError> {
    App::decode(value).ok_or_else(|| StoreError::corrupt("an app"))
}

fn table(cluster: &Cluster) -> Result<hbase_client::Table, StoreError> {
    Ok(cluster.client().table(&tables::meta(cluster.prefix()))?)
}

fn value(row: &Row) -> Vec<u8> {
    row.value(FAMILY, VALUE).unwrap_or_default().to_vec()
}

fn get(cluster: &Cluster, row: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let row = cluster.wait(table(cluster)?.get(Get::new(row.to_vec())))?;
    Ok(row.map(|row| value(&row)))
}

fn put(cluster: &Cluster, row: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
    Ok(cluster.wait(table(cluster)?.mutate(Put::new(row).cell(FAMILY, VALUE, value)))?)
}

/// Where it can not be told whether it did, it did not: who asks looks again.
fn put_where(
    cluster: &Cluster,
    row: &[u8],
    expected: Option<Vec<u8>>,
    value: Vec<u8>,
) -> Result<bool, StoreError> {
    let put = Put::new(row.to_vec()).cell(FAMILY, VALUE, value);
    let check = match expected {
        Some(expected) => CheckAndMutate::where_equal(FAMILY, VALUE, expected, put),
        None => CheckAndMutate::where_absent(FAMILY, VALUE, put),
    };
    match cluster.wait(table(cluster)?.check_and_mutate(check)) {
        Err(hbase_client::Error::Uncertain { .. }) => Ok(false),
        outcome => Ok(outcome?),
    }
}
