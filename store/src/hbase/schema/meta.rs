//! The metadata of a store in HBase, in its table `meta`.
//!
//! | row | value |
//! |---|---|
//! | `store` | layout u32 · partitions u16 |
//! | `copying` | present while a store is copied here; the store does not open then |
//! | `app/` and pid u32 | as in an embedded store |
//! | `named/` and pid u32 | the app's key |
//! | `expiring/` and pid u32 | as in an embedded store |
//! | `complete/`, topic, `/` and partition u32 | time before which all records that Kafka received are stored, ms u64 |
//! | `partitions/` and topic | number of partitions of the topic, u32 |
//! | `callback_counts` | see [`CountsRow`](crate::hbase::counts::CountsRow) |

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use hbase_client::{CheckAndMutate, Delete, Get, Put, Row, Scan};

use super::tables;
use crate::StoreError;
use crate::apps::names::{self, Names};
use crate::apps::record::App;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::expiry::floor::{self, ExpiryRecord, ExpiryRecords};
use crate::hbase::cluster::{Cluster, FAMILY};
use crate::hbase::ledger::cells::VALUE;
use crate::layout::codec::event_time;
use crate::layout::key;

/// The version of all tables together. Lower versions were written by development versions only.
const LAYOUT_VERSION: u32 = 7;

const STORE: &[u8] = b"store";
const COPYING: &[u8] = b"copying";
const APP: &[u8] = b"app/";
const NAMED: &[u8] = b"named/";
const EXPIRING: &[u8] = b"expiring/";
const COMPLETE: &[u8] = b"complete/";
const PARTITIONS: &[u8] = b"partitions/";
const CALLBACK_COUNTS: &[u8] = b"callback_counts";
/// Limit for attempts of a check-and-put that other processes make fail.
const ATTEMPTS_MAX: u32 = 20;

/// Properties that are fixed when the store is created.
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

/// Loads the metadata; `None` if there is none, or the table does not exist.
pub fn load(cluster: &Cluster) -> Result<Option<Meta>, StoreError> {
    let found = match get(cluster, STORE) {
        Err(StoreError::HBase(hbase_client::Error::NoTable { .. })) => None,
        found => found?,
    };
    let Some(value) = found else { return Ok(None) };
    Meta::decode(&value).map(Some).ok_or_else(|| StoreError::corrupt("the metadata of the store"))
}

/// Checks that this version of adtrail can use the store with these settings.
pub(crate) fn require(cluster: &Cluster, configured: u16) -> Result<(), StoreError> {
    let prefix = || cluster.prefix().to_owned();
    let Some(Meta { layout, partitions }) = load(cluster)? else {
        return Err(StoreError::NoTables { prefix: prefix() });
    };
    if layout != LAYOUT_VERSION {
        let location = format!("the tables {}_…", cluster.prefix());
        return Err(StoreError::OtherLayout { location, found: layout, expected: LAYOUT_VERSION });
    }
    if partitions != configured {
        let found = partitions;
        return Err(StoreError::OtherPartitions { prefix: prefix(), found, configured });
    }
    Ok(())
}

/// Writes the metadata unless it exists.
pub fn create(cluster: &Cluster, partitions: u16) -> Result<(), StoreError> {
    let meta = Meta { layout: LAYOUT_VERSION, partitions };
    // If another process was first, the caller checks what that one has written.
    put_where(cluster, STORE, None, meta.encode()).map(drop)
}

pub fn app(cluster: &Cluster, pid: Pid) -> Result<Option<App>, StoreError> {
    get(cluster, &key::with_pid(APP, pid))?.map(|value| decode_app(&value)).transpose()
}

pub fn apps(cluster: &Cluster) -> Result<BTreeMap<Pid, App>, StoreError> {
    let app = |row: &Row| {
        let pid = row.key().get(APP.len()..).and_then(key::decode_pid);
        let pid = pid.ok_or_else(|| StoreError::corrupt("the record of an app"))?;
        Ok((pid, decode_app(&value(row))?))
    };
    rows(cluster, APP)?.iter().map(app).collect()
}

pub fn put_app(cluster: &Cluster, pid: Pid, app: &App) -> Result<(), StoreError> {
    put(cluster, key::with_pid(APP, pid), app.encode())
}

/// True if a store is being copied here, or such a copy was interrupted.
pub fn is_copying(cluster: &Cluster) -> Result<bool, StoreError> {
    get(cluster, COPYING).map(|value| value.is_some())
}

pub fn begin_copying(cluster: &Cluster) -> Result<(), StoreError> {
    put(cluster, COPYING.to_vec(), vec![1])
}

pub fn end_copying(cluster: &Cluster) -> Result<(), StoreError> {
    Ok(cluster.wait(table(cluster)?.mutate(Delete::new(COPYING.to_vec())))?)
}

/// Adds the new apps of the settings and raises fanouts, before rows are written with them. Returns the apps with which
/// this process must write.
pub fn enroll(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<BTreeMap<Pid, App>, StoreError> {
    let names = names(cluster)?;
    for (pid, key) in names::check_app_ids(&names, policy)? {
        let previous = names.get(&pid).map(|previous| previous.as_bytes().to_vec());
        put_where(cluster, &key::with_pid(NAMED, pid), previous, key.into())?;
    }
    // Another worker may have been first, with other settings.
    names::check_app_ids(&self::names(cluster)?, policy)?;
    let mut apps = BTreeMap::new();
    for app in policy.apps() {
        let fanout = settings.apps.get(&app.pid).and_then(|app| app.fanout).unwrap_or(1);
        let fanout_bits = fanout.checked_ilog2().unwrap_or(0) as u8;
        let base = key::partition(&app.key, settings.partitions);
        let raise_fanout = |stored: Option<&[u8]>| {
            let mut app = stored.map(decode_app).transpose()?.unwrap_or(App::new(base));
            app.set_fanout_bits(fanout_bits);
            Ok((app, app.encode()))
        };
        let what = "the record of the app with pid";
        apps.insert(app.pid, update(cluster, APP, app.pid, what, raise_fanout)?);
    }
    Ok(apps)
}

/// Stores the settings by which state expires, and returns the records with the floors of earlier settings.
pub fn record_expiry(
    cluster: &Cluster,
    expiry: &Expiry,
    until: EventTime,
) -> Result<ExpiryRecords, StoreError> {
    let stored = expiry_records(cluster)?;
    let mut records = ExpiryRecords::new();
    for pid in floor::under(&stored, expiry, Some(until)).into_keys() {
        let under_settings = |stored: Option<&[u8]>| {
            let before = stored.map(|value| decode_expiry_record(pid, value)).transpose()?;
            let record = before.unwrap_or_default().under(expiry.kept(pid), Some(until));
            Ok((record, record.encode()))
        };
        let what = "the expiry record of the app with pid";
        records.insert(pid, update(cluster, EXPIRING, pid, what, under_settings)?);
    }
    Ok(records)
}

/// Replaces the stored value of an app by the one that `change` derives from it, if that differs, and retries while
/// other processes change it too.
fn update<T>(
    cluster: &Cluster,
    prefix: &[u8],
    pid: Pid,
    what: &str,
    change: impl Fn(Option<&[u8]>) -> Result<(T, Vec<u8>), StoreError>,
) -> Result<T, StoreError> {
    let row = key::with_pid(prefix, pid);
    for _ in 0..ATTEMPTS_MAX {
        let stored = get(cluster, &row)?;
        let (changed, value) = change(stored.as_deref())?;
        if stored.as_ref() == Some(&value) || put_where(cluster, &row, stored, value)? {
            return Ok(changed);
        }
    }
    Err(StoreError::Contended { what: format!("{what} {}", pid.0) })
}

pub fn expiry_records(cluster: &Cluster) -> Result<ExpiryRecords, StoreError> {
    let of_row = |row: &Row| {
        let pid = row.key().get(EXPIRING.len()..).unwrap_or_default();
        floor::decode(pid, &value(row), now())
    };
    rows(cluster, EXPIRING)?.iter().map(of_row).collect()
}

pub fn expiry_record(cluster: &Cluster, pid: Pid) -> Result<ExpiryRecord, StoreError> {
    let value = get(cluster, &key::with_pid(EXPIRING, pid))?;
    Ok(value.map(|value| decode_expiry_record(pid, &value)).transpose()?.unwrap_or_default())
}

pub fn put_expiry_record(
    cluster: &Cluster,
    pid: Pid,
    record: &ExpiryRecord,
) -> Result<(), StoreError> {
    put(cluster, key::with_pid(EXPIRING, pid), record.encode())
}

fn decode_expiry_record(pid: Pid, value: &[u8]) -> Result<ExpiryRecord, StoreError> {
    floor::decode(&pid.0.to_be_bytes(), value, now()).map(|(_, record)| record)
}

/// The time before which all records of a partition are stored, as reported by the worker that reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionComplete {
    pub topic: Box<str>,
    pub partition: i32,
    pub until: EventTime,
}

/// Stores up to which time partitions are complete, and the number of partitions of each topic.
pub fn put_complete(
    cluster: &Cluster,
    complete: &[PartitionComplete],
    counts: &[(Box<str>, usize)],
) -> Result<(), StoreError> {
    let put = |row: Vec<u8>, value: Vec<u8>| Put::new(row).cell(FAMILY, VALUE, value).into();
    let times = complete.iter().map(|PartitionComplete { topic, partition, until }| {
        let row = [COMPLETE, topic.as_bytes(), b"/", &partition.to_be_bytes()].concat();
        put(row, until.millis().to_be_bytes().to_vec())
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

/// The time before which all records that Kafka received in these topics are stored: the minimum over all partitions;
/// `None` while the time of any partition is unknown.
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

pub fn callback_counts(cluster: &Cluster) -> Result<Option<Vec<u8>>, StoreError> {
    get(cluster, CALLBACK_COUNTS)
}

/// See [`put_where`].
pub fn put_callback_counts(
    cluster: &Cluster,
    expected: Option<Vec<u8>>,
    value: Vec<u8>,
) -> Result<bool, StoreError> {
    put_where(cluster, CALLBACK_COUNTS, expected, value)
}

fn time(value: &[u8]) -> Option<EventTime> {
    event_time(value.try_into().map(u64::from_be_bytes).ok()?)
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
    put(cluster, key::with_pid(NAMED, pid), key.into())
}

fn decode_app(value: &[u8]) -> Result<App, StoreError> {
    App::decode(value).ok_or_else(|| StoreError::corrupt("the record of an app"))
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

/// Puts a value if the stored one is `expected`. Returns false if the outcome is uncertain: the caller reads again.
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
