//! A store in HBase: how it is opened, and its writing and reading sides.

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use hbase_client::RegionStatus;

use super::cluster::{Cluster, State};
use super::ledger::cells::Table;
use super::ledger::{LedgerApps, SharedLedger};
use super::read::SharedReader;
use super::schema::meta::{self, PartitionComplete, require};
use super::schema::provision;
use super::schema::tables::{self, LAG_MS};
use crate::StoreError;
use crate::Timing;
use crate::apps::record::App;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::layout::key::{KEY_BYTES, Key};
use crate::reader;

/// An existing store in HBase.
pub struct Shared {
    cluster: Cluster,
    settings: Arc<config::Store>,
}

impl Shared {
    /// Connects to the configured store. This needs permission to read its tables, but no master.
    ///
    /// # Errors
    /// If no server answers, the store is missing, or it does not match the settings.
    pub fn open(settings: &config::Store, hbase: &config::HBase) -> Result<Self, StoreError> {
        Self::open_with_timing(settings, hbase, Timing::default())
    }

    /// [`Shared::open`] with another timing.
    ///
    /// # Errors
    /// See [`Shared::open`].
    pub fn open_with_timing(
        settings: &config::Store,
        hbase: &config::HBase,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let store = Self::open_incomplete(settings, hbase, timing)?;
        if meta::is_copying(&store.cluster)? {
            return Err(StoreError::IncompleteCopy { prefix: store.cluster.prefix().into() });
        }
        Ok(store)
    }

    /// [`Shared::open`] that also accepts the target of an incomplete copy.
    pub(super) fn open_incomplete(
        settings: &config::Store,
        hbase: &config::HBase,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let cluster = Cluster::connect(hbase, timing)?;
        require_table(&cluster, tables::meta(cluster.prefix()))?;
        require(&cluster, settings.partitions)?;
        tables::names(cluster.prefix())
            .into_iter()
            .try_for_each(|name| require_table(&cluster, name))?;
        Ok(Self { cluster, settings: Arc::new(settings.clone()) })
    }

    pub(super) fn into_cluster(self) -> Cluster {
        self.cluster
    }

    /// Checks that the TTLs of the tables keep rows and state as long as the settings need them.
    ///
    /// # Errors
    /// [`StoreError::TtlTooShort`] if they do not; that of HBase if no master answers.
    pub fn require_kept(&self, policy: &Policy) -> Result<(), StoreError> {
        provision::require_kept(&self.cluster, &self.settings, policy)
    }

    /// The writing side, for one of many workers. Apps of the policy that the store does not know yet are added to it.
    pub fn ledger(&self, policy: &Policy) -> Result<SharedLedger<Cluster>, StoreError> {
        let apps = self.ledger_apps(policy)?;
        let cells = self.cluster.for_one_thread()?;
        let mut ledger = SharedLedger::new(cells, BTreeMap::new(), self.settings.partitions);
        ledger.set_apps(&apps);
        Ok(ledger)
    }

    /// What a ledger needs of the apps of the policy, for [`SharedLedger::set_apps`]. Apps that the store does not know
    /// yet are added to it.
    ///
    /// # Errors
    /// If HBase does not answer, or a pid belongs to another app.
    pub fn ledger_apps(&self, policy: &Policy) -> Result<LedgerApps, StoreError> {
        let apps: BTreeMap<Pid, App> = meta::enroll(&self.cluster, &self.settings, policy)?;
        let expiry = Expiry::new(policy, |pid| self.settings.retention_of(pid));
        expiry.set_floors(&meta::record_expiry(&self.cluster, &expiry, now().minus(LAG_MS))?);
        Ok(LedgerApps { apps, expiry })
    }

    /// The reading side, for any number of threads.
    pub fn reader(&self) -> reader::Reader {
        let (cluster, settings) = (self.cluster.clone(), Arc::clone(&self.settings));
        let partitions = settings.partitions;
        reader::Reader::Shared(SharedReader { cluster, partitions, settings })
    }

    /// Checks that HBase answers, and that no worker of this process is retrying.
    ///
    /// # Errors
    /// That of HBase if it does not answer; [`StoreError::Waiting`] while a worker retries.
    pub fn check_health(&self) -> Result<(), StoreError> {
        require(&self.cluster, self.settings.partitions)?;
        match self.cluster.is_waiting() {
            true => Err(StoreError::Waiting),
            false => Ok(()),
        }
    }

    /// Stores up to which time partitions are complete, and the number of partitions of each topic, for the processes
    /// that export.
    pub fn put_complete(
        &self,
        complete: &[PartitionComplete],
        counts: &[(Box<str>, usize)],
    ) -> Result<(), StoreError> {
        meta::put_complete(&self.cluster, complete, counts)
    }

    /// The time before which all records that Kafka received in these topics are in the store; `None` while it is
    /// unknown.
    pub fn complete_until(&self, topics: &[&str]) -> Result<Option<EventTime>, StoreError> {
        meta::complete_until(&self.cluster, topics)
    }

    /// HBase's regions of the table of rows, in key order.
    pub fn regions(&self) -> Result<Vec<ClusterRegion>, StoreError> {
        let table = tables::name(self.cluster.prefix(), Table::Events);
        let regions = self.cluster.wait(self.cluster.client().admin().regions(&table))?;
        Ok(regions.into_iter().map(ClusterRegion::new).collect())
    }

    /// From now on operations that time out fail and are not retried.
    pub fn give_up(&self) {
        self.cluster.give_up();
    }
}

/// A region of the table of rows, as HBase reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRegion {
    /// The start key, inclusive.
    pub start: Key,
    /// `None` while the region is in transition.
    pub server: Option<String>,
    /// `None` if its server does not report it.
    pub load: Option<RegionLoad>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLoad {
    /// Size of its files, compressed, and of its memstore; in whole MiB.
    pub bytes: u64,
    /// Requests since the server opened the region, one per row.
    pub writes: u64,
    pub reads: u64,
}

impl ClusterRegion {
    fn new(region: RegionStatus) -> Self {
        let mut start = [0; KEY_BYTES];
        start.iter_mut().zip(&region.start[..]).for_each(|(to, from)| *to = *from);
        let load = region.load.map(|load| RegionLoad {
            bytes: (u64::from(load.store_files_mb) + u64::from(load.memory_mb)) << 20,
            writes: load.write_requests,
            reads: load.read_requests,
        });
        Self { start, server: region.server.map(|server| server.to_string()), load }
    }
}

/// Checks that a table exists, by a read. A table that does not answer now passes: later reads report the error.
fn require_table(cluster: &Cluster, name: String) -> Result<(), StoreError> {
    match cluster.probe(&name)? {
        State::Missing => Err(StoreError::NoTables { prefix: cluster.prefix().into() }),
        State::Foreign => Err(provision::foreign(name, &[])),
        State::Available | State::Disabled | State::Unresponsive => Ok(()),
    }
}
