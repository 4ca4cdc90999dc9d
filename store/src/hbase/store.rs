//! A store in HBase as a whole, as it is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use hbase_client::RegionStatus;

use super::cluster::{Cluster, State};
use super::ledger::SharedLedger;
use super::ledger::cells::Table;
use super::read::Reader;
use super::schema::meta::{self, Complete, require};
use super::schema::provision;
use super::schema::tables::{self, LAG_MS, Ttls};
use crate::StoreError;
use crate::Timing;
use crate::apps::spread::App;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::layout::key::{KEY_BYTES, Key};
use crate::reader;

/// A store that there is.
pub struct Shared {
    cluster: Cluster,
    settings: Arc<config::Store>,
}

impl Shared {
    /// Connects to the store of the settings. Needs no more than to read its tables, and no master.
    ///
    /// # Errors
    /// Where no server answers, there is no such store, or it is another one than the settings say.
    pub fn open(settings: &config::Store, hbase: &config::HBase) -> Result<Self, StoreError> {
        Self::open_with_timing(settings, hbase, Timing::default())
    }

    /// As [`Shared::open`], with the given timing instead of the default.
    ///
    /// # Errors
    /// As of [`Shared::open`].
    pub fn open_with_timing(
        settings: &config::Store,
        hbase: &config::HBase,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let store = Self::open_unfinished(settings, hbase, timing)?;
        if meta::is_copying(&store.cluster)? {
            return Err(StoreError::HalfCopied { prefix: store.cluster.prefix().into() });
        }
        Ok(store)
    }

    /// As [`Shared::open`], also where another store is being moved there.
    pub(super) fn open_for_copying(
        settings: &config::Store,
        hbase: &config::HBase,
    ) -> Result<Self, StoreError> {
        Self::open_unfinished(settings, hbase, Timing::default())
    }

    fn open_unfinished(
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

    /// That HBase keeps rows and state for as long as the settings need them.
    ///
    /// # Errors
    /// [`StoreError::ShortLived`] where it does not; that of HBase where no master tells.
    pub fn require_kept(&self, policy: &Policy) -> Result<(), StoreError> {
        provision::require_kept(&self.cluster, &self.settings, policy)
    }

    /// The writing side, for one worker of many. Apps of the policy that the store does not know yet are
    /// noted in it.
    ///
    /// # Errors
    /// Where HBase does not answer in its time.
    pub fn ledger(&self, policy: &Policy) -> Result<SharedLedger<Cluster>, StoreError> {
        let apps: BTreeMap<Pid, App> = meta::enroll(&self.cluster, &self.settings, policy)?;
        let cells = self.cluster.for_one_thread()?;
        let ledger = SharedLedger::new(cells, apps, self.settings.partitions);
        let expiry = Expiry::new(policy, |pid| self.settings.retention_of(pid));
        expiry.hold(&meta::note(&self.cluster, &expiry, now().minus(LAG_MS))?);
        Ok(ledger.with_lives(Ttls::new(&self.settings, policy)).with_expiry(expiry))
    }

    /// The reading side, for any number of threads.
    pub fn reader(&self) -> reader::Reader {
        let (cluster, settings) = (self.cluster.clone(), Arc::clone(&self.settings));
        let partitions = settings.partitions;
        reader::Reader::Shared(Reader { cluster, partitions, settings })
    }

    /// Whether HBase answers.
    ///
    /// # Errors
    /// Why it does not; or that something is written again and again in vain.
    pub fn look(&self) -> Result<(), StoreError> {
        require(&self.cluster, self.settings.partitions)?;
        match self.cluster.is_waiting() {
            true => Err(StoreError::Waiting),
            false => Ok(()),
        }
    }

    /// Tells all who export how far partitions are in, and how many there are of each topic.
    ///
    /// # Errors
    /// Where HBase does not answer in its time.
    pub fn tell(
        &self,
        complete: &[Complete],
        counts: &[(Box<str>, usize)],
    ) -> Result<(), StoreError> {
        meta::put_complete(&self.cluster, complete, counts)
    }

    /// All that Kafka received in these topics before this is in; `None` while that is not known.
    ///
    /// # Errors
    /// Where HBase does not answer in its time.
    pub fn complete_until(&self, topics: &[&str]) -> Result<Option<EventTime>, StoreError> {
        meta::complete_until(&self.cluster, topics)
    }

    /// The cluster's own regions of the table of rows, in the order of their keys.
    ///
    /// # Errors
    /// Where HBase does not answer in its time.
    pub fn regions(&self) -> Result<Vec<ClusterRegion>, StoreError> {
        let table = tables::name(self.cluster.prefix(), Table::Events);
        let regions = self.cluster.wait(self.cluster.client().admin().regions(&table))?;
        Ok(regions.into_iter().map(ClusterRegion::new).collect())
    }

    /// From now on what HBase does not do in its time fails, and is not tried again.
    pub fn give_up(&self) {
        self.cluster.give_up();
    }
}

/// What HBase tells of a region of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRegion {
    /// The first key that can be in it.
    pub start: Key,
    /// `None` while it moves.
    pub server: Option<String>,
    /// `None` where its server does not say.
    pub load: Option<RegionLoad>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLoad {
    /// In files, compressed, and in memory; whole MiB.
    pub bytes: u64,
    /// Requests since the server has it, one for each row.
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

/// That a table is there, by a read alone. What does not answer now is left to whoever reads it.
fn require_table(cluster: &Cluster, name: String) -> Result<(), StoreError> {
    match cluster.look_at(&name)? {
        State::Missing => Err(StoreError::NotMade { prefix: cluster.prefix().into() }),
        State::Foreign => Err(provision::foreign(name, &[])),
        State::Stands | State::Disabled | State::Silent => Ok(()),
    }
}
