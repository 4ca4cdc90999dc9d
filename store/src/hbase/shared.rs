//! A store in HBase as a whole: made, looked at, and opened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use attribution::event::{EventTime, Pid};
use attribution::policy::Policy;
use hbase_client::{Error, RegionStatus, TableSpec};

use super::cells::Table;
use super::cluster::{Cluster, FAMILY};
use super::ledger::SharedLedger;
use super::meta::{self, Complete, LAYOUT_VERSION, Meta};
use super::reader::Reader;
use super::tables::{self, Kept, LAG_MS, Layout, Lives};
use crate::StoreError;
use crate::app::App;
use crate::embedded::regions::now;
use crate::expiry::Expiry;
use crate::key::{KEY_BYTES, Key};
use crate::scan;

/// A store that there is.
pub struct Shared {
    cluster: Cluster,
    settings: Arc<config::Store>,
}

impl Shared {
    /// Connects to the store of the settings.
    ///
    /// # Errors
    /// Where no server answers, there is no such store, or it is another one than the settings say.
    pub fn open(settings: &config::Store, hbase: &config::HBase) -> Result<Self, StoreError> {
        let store = Self::open_for_copying(settings, hbase)?;
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
        let cluster = Cluster::connect(hbase)?;
        for layout in tables::layouts(cluster.prefix(), &Kept::default(), settings.partitions) {
            match describe(&cluster, &layout.spec.name)? {
                Some(spec) => usable(&spec)?,
                None => return Err(StoreError::NotMade { prefix: cluster.prefix().into() }),
            }
        }
        require(&cluster, settings.partitions)?;
        Ok(Self { cluster, settings: Arc::new(settings.clone()) })
    }

    pub(super) fn into_cluster(self) -> Cluster {
        self.cluster
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
        Ok(ledger.with_lives(Lives::new(&self.settings, policy)).with_expiry(expiry))
    }

    /// The reading side, for any number of threads.
    pub fn reader(&self) -> scan::Reader {
        let (cluster, settings) = (self.cluster.clone(), Arc::clone(&self.settings));
        let partitions = settings.partitions;
        scan::Reader::Shared(Reader { cluster, partitions, settings })
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
    /// Requests since the server has it: one writes or reads many rows.
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

/// That the store is one that this adtrail can use by these settings.
fn require(cluster: &Cluster, configured: u16) -> Result<(), StoreError> {
    let prefix = || cluster.prefix().to_owned();
    let Some(Meta { layout, partitions }) = meta::load(cluster)? else {
        return Err(StoreError::NotMade { prefix: prefix() });
    };
    if layout != LAYOUT_VERSION {
        let (found, expected) = (layout, LAYOUT_VERSION);
        return Err(StoreError::OtherLayout { prefix: prefix(), found, expected });
    }
    if partitions != configured {
        let found = partitions;
        return Err(StoreError::OtherPartitions { prefix: prefix(), found, configured });
    }
    Ok(())
}

/// Nothing where there is no such table.
fn describe(cluster: &Cluster, name: &str) -> Result<Option<TableSpec>, StoreError> {
    match cluster.wait(cluster.client().admin().describe(name)) {
        Ok(spec) => Ok(Some(spec)),
        Err(Error::NoTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn usable(spec: &TableSpec) -> Result<(), StoreError> {
    let family = String::from_utf8_lossy(FAMILY);
    if spec.families.iter().any(|one| one.name == family) {
        return Ok(());
    }
    let has: Vec<&str> = spec.families.iter().map(|family| &*family.name).collect();
    let reason = format!(
        "it has no column family {family}, but {}: it was not made by adtrail hbase init; move it away, or \
         set another store.hbase.prefix",
        has.join(", ")
    );
    Err(StoreError::Unusable { table: spec.name.clone(), reason })
}

/// What has become of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// It was not there.
    Created { table: String, regions: usize },
    /// It is as it should be, or not.
    Stood { table: String, differences: Vec<Difference> },
}

/// Something of a table that is not as the settings would make it. What is written and read is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    Attribute {
        name: String,
        found: Option<String>,
        expected: Option<String>,
    },
    /// No region begins at this row.
    Split {
        row: Vec<u8>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute { name, found, expected } => {
                let shown = |value: &Option<String>| value.clone().unwrap_or("not set".to_owned());
                write!(out, "{name} is {}, and should be {}", shown(found), shown(expected))
            }
            Self::Split { row } => write!(out, "no region begins at \"{}\"", shell(row)),
        }
    }
}

/// As HBase's shell writes bytes.
pub fn shell(row: &[u8]) -> String {
    row.iter().map(|byte| format!("\\x{byte:02X}")).collect()
}

/// Makes what is missing of the store of the settings, and compares what is there.
///
/// # Errors
/// As of [`Shared::open`]. Nothing is made where a table can not be used.
pub fn init(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<Made>, StoreError> {
    let cluster = Cluster::connect(hbase)?;
    let (plan, is_new) = compare(&cluster, settings, policy)?;
    for (layout, made) in layouts(&cluster, settings, policy).into_iter().zip(&plan) {
        if matches!(made, Made::Created { .. }) {
            let splits: Vec<_> = layout.splits.into_iter().map(Into::into).collect();
            cluster.wait(cluster.client().admin().create(&layout.spec, &splits))?;
        }
    }
    if is_new {
        // Last: without it nothing opens the store.
        meta::create(&cluster, settings.partitions)?;
    }
    require(&cluster, settings.partitions)?;
    Ok(plan)
}

/// What [`init`] would do.
///
/// # Errors
/// As of [`init`].
pub fn check(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<Made>, StoreError> {
    Ok(compare(&Cluster::connect(hbase)?, settings, policy)?.0)
}

fn layouts(cluster: &Cluster, settings: &config::Store, policy: &Policy) -> Vec<Layout> {
    tables::layouts(cluster.prefix(), &Kept::new(settings, policy), settings.partitions)
}

/// By [`layouts`]; and whether the store is yet to be made.
fn compare(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<(Vec<Made>, bool), StoreError> {
    let mut plan = Vec::new();
    let mut has_meta = false;
    for Layout { spec, splits } in layouts(cluster, settings, policy) {
        let Some(found) = describe(cluster, &spec.name)? else {
            plan.push(Made::Created { table: spec.name, regions: splits.len() + 1 });
            continue;
        };
        usable(&found)?;
        has_meta |= spec.name == tables::meta(cluster.prefix());
        let mut differences = attributes(&found, &spec);
        let regions = cluster.wait(cluster.client().admin().regions(&spec.name))?;
        let begins = |row: &Vec<u8>| regions.iter().any(|region| region.start[..] == row[..]);
        let missing = splits.into_iter().filter(|row| !begins(row));
        differences.extend(missing.map(|row| Difference::Split { row }));
        plan.push(Made::Stood { table: spec.name, differences });
    }
    let is_new = !has_meta || meta::load(cluster)?.is_none();
    if !is_new {
        require(cluster, settings.partitions)?;
    }
    Ok((plan, is_new))
}

/// Those that the settings say something of.
fn attributes(found: &TableSpec, expected: &TableSpec) -> Vec<Difference> {
    const OF_FAMILY: [&str; 5] =
        ["VERSIONS", "TTL", "BLOOMFILTER", "COMPRESSION", "DATA_BLOCK_ENCODING"];
    let family =
        |spec: &TableSpec| spec.families.iter().find(|one| one.name.as_bytes() == FAMILY).cloned();
    let (Some(found_family), Some(expected_family)) = (family(found), family(expected)) else {
        return Vec::new();
    };
    let mut differences = Vec::new();
    for name in OF_FAMILY {
        let value = |family: &hbase_client::Family| {
            // Both say for ever.
            family.value(name).filter(|value| *value != "2147483647").map(str::to_owned)
        };
        let (found, expected) = (value(&found_family), value(&expected_family));
        if found != expected {
            differences.push(Difference::Attribute { name: name.to_owned(), found, expected });
        }
    }
    differences
}
