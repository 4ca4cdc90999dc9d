//! The regions of a table: where they are, how large, and their flushes, splits, merges and moves.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use prost::Message;

use super::{Admin, nonces};
use crate::cluster::MetaRow;
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::names::{Server, TableName};
use crate::proto::admin::{
    FlushRegionRequest, GetClusterStatusRequest, GetClusterStatusResponse, GetRegionLoadRequest,
    GetRegionLoadResponse, MergeTableRegionsRequest, MoveRegionRequest, RegionLoad,
    SplitRegionRequest,
};
use crate::proto::common::{RegionInfo, RegionSpecifier, ServerName};
use crate::proto::rpc::Empty;
use crate::remote_exception::RetryAction;

/// A region, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionStatus {
    /// As `table,start,id.encoded.`
    pub name: Bytes,
    /// Empty: the first region.
    pub start: Bytes,
    /// Empty: the last region.
    pub end: Bytes,
    /// None while it moves, or its table is disabled.
    pub server: Option<Server>,
    /// Since its server started, and nothing where that was not to be learnt.
    pub load: Option<Load>,
    info: Described,
}

/// What a region's server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub store_files_mb: u32,
    pub memory_mb: u32,
    pub read_requests: u64,
    pub write_requests: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Described(RegionInfo);

impl Eq for Described {}

impl Admin {
    /// All regions of a table, in the order of their rows. Needs no master.
    ///
    /// # Errors
    /// Where there is no such table.
    pub async fn regions(&self, table: &str) -> Result<Vec<RegionStatus>, Error> {
        let table: TableName = table.parse()?;
        let rows = self.look_up(&table).await?;
        let mut regions: Vec<_> = rows.into_iter().map(RegionStatus::new).collect();
        if regions.is_empty() {
            return Err(Error::NoTable { table });
        }
        regions.sort_by(|a, b| a.start.cmp(&b.start));
        self.add_loads(&table, &mut regions).await;
        Ok(regions)
    }

    /// What `hbase:meta` has of a table, asked until it answers.
    async fn look_up(&self, table: &TableName) -> Result<Vec<MetaRow>, Error> {
        let deadline = self.cluster.operation_deadline();
        for failed in 0.. {
            let error = match self.cluster.list(table, deadline).await {
                Ok(regions) => return Ok(regions),
                Err(error) if error.retry_action() == RetryAction::Fail => return Err(error),
                Err(error) => error,
            };
            self.pause("the list of regions", failed, error, deadline).await?;
        }
        Err(Error::Closed)
    }

    /// Servers that do not answer now have no figures.
    async fn add_loads(&self, table: &TableName, regions: &mut [RegionStatus]) {
        let servers: BTreeSet<_> = regions.iter().filter_map(|r| r.server.clone()).collect();
        let mut loads = HashMap::new();
        for server in servers {
            let request = GetRegionLoadRequest { table_name: Some(table.to_proto()) };
            let answer = self.ask_region_server(&server, "GetRegionLoad", &request).await;
            let answer: GetRegionLoadResponse = answer.unwrap_or_default();
            let named = |load: RegionLoad| (load.region_specifier.value.clone(), load);
            loads.extend(answer.region_loads.into_iter().map(named));
        }
        for region in regions {
            region.load = loads.get(&region.name).map(Load::from_proto);
        }
    }

    /// Has a table's regions write to disk what they have in memory.
    ///
    /// # Errors
    /// Where there is no such table, or a server does not answer.
    pub async fn flush(&self, table: &str) -> Result<(), Error> {
        for region in self.regions(table).await? {
            let Some(server) = region.server else { continue };
            let request = FlushRegionRequest { region: RegionSpecifier::name(&region.name) };
            let _: Empty = self.ask_region_server(&server, "FlushRegion", &request).await?;
        }
        Ok(())
    }

    /// Has a region split in two.
    ///
    /// # Errors
    /// Where the row is not within the region, or it can not be split now.
    pub async fn split(&self, region: &RegionStatus, at: impl Into<Bytes>) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let (region_info, split_row) = (region.info.0.clone(), Some(at.into()));
        let request = SplitRegionRequest { region_info, split_row, nonce_group, nonce };
        self.procedure("SplitRegion", &request).await
    }

    /// Has two regions that lie side by side become one.
    ///
    /// # Errors
    /// Where they do not lie side by side, or one can not be merged now: as one that was split and
    /// still has files in common with its other half.
    pub async fn merge(&self, one: &RegionStatus, next: &RegionStatus) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let region = [one, next].map(|region| RegionSpecifier::encoded(region.encoded_name()));
        let request = MergeTableRegionsRequest { region: region.into(), nonce_group, nonce };
        self.procedure("MergeTableRegions", &request).await
    }

    /// Has a region go to another server: one of those that [`Admin::regions`] shows. It is on its
    /// way when this ends.
    ///
    /// # Errors
    /// Where there is no such server, or no such region any more.
    pub async fn move_to(&self, region: &RegionStatus, server: &Server) -> Result<(), Error> {
        let servers = self.region_servers().await?;
        let named = |name: &ServerName| Server::from_proto(name).as_ref() == Some(server);
        let dest = servers.into_iter().find(named);
        let dest = dest.ok_or_else(|| {
            Error::input(format!("{server} is no region server that the master knows"))
        })?;
        let specifier = RegionSpecifier::encoded(region.encoded_name());
        let request = MoveRegionRequest { region: specifier, dest_server_name: Some(dest) };
        let _: Empty = self.ask("MoveRegion", &request).await?;
        Ok(())
    }

    /// All of them: a region server names some others of a large cluster, and not itself.
    async fn region_servers(&self) -> Result<Vec<ServerName>, Error> {
        let options = vec![GetClusterStatusRequest::LIVE_SERVERS];
        let answer: GetClusterStatusResponse =
            self.ask("GetClusterStatus", &GetClusterStatusRequest { options }).await?;
        Ok(answer.cluster_status.live_servers.into_iter().map(|one| one.server).collect())
    }

    async fn ask_region_server<M: Message, R: Message + Default>(
        &self,
        server: &Server,
        method: &'static str,
        request: &M,
    ) -> Result<R, Error> {
        let deadline = self.cluster.call_deadline(self.cluster.operation_deadline());
        let call = Call::new(method, request, deadline);
        Ok(self.cluster.call(server, Service::Region, call).await?.0)
    }
}

impl RegionStatus {
    fn new(row: MetaRow) -> Self {
        let (start, end) = (row.start(), row.end());
        let MetaRow { name, server, info } = row;
        Self { name, start, end, server, load: None, info: Described(info) }
    }

    /// The part of its name that is a hash of the rest.
    pub fn encoded_name(&self) -> &str {
        // The row within the name need not be text.
        let name = self.name.strip_suffix(b".").unwrap_or(&self.name);
        let hash = name.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
        std::str::from_utf8(hash).unwrap_or_default()
    }
}

impl Load {
    fn from_proto(load: &RegionLoad) -> Self {
        Self {
            store_files_mb: load.storefile_size_mb.unwrap_or(0),
            memory_mb: load.mem_store_size_mb.unwrap_or(0),
            read_requests: load.read_requests.unwrap_or(0),
            write_requests: load.write_requests.unwrap_or(0),
        }
    }
}
