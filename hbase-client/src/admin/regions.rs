//! The regions of a table: locations and sizes; flush, split, merge and move.

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

/// The current state of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionStatus {
    /// The name, in the form `table,start,id.encoded.`
    pub name: Bytes,
    /// The first row; empty for the first region.
    pub start: Bytes,
    /// The row after the last; empty for the last region.
    pub end: Bytes,
    /// `None` while the region moves or its table is disabled.
    pub server: Option<Server>,
    /// `None` if the server did not return it.
    pub load: Option<Load>,
    info: RegionInfo,
}

/// Size of a region, and request counts since its server started, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub store_files_mb: u32,
    pub memory_mb: u32,
    pub read_requests: u64,
    pub write_requests: u64,
}

impl Admin {
    /// Returns all regions of a table in row order. Does not need a master.
    ///
    /// # Errors
    /// Fails if the table does not exist.
    pub async fn regions(&self, table: &str) -> Result<Vec<RegionStatus>, Error> {
        let table: TableName = table.parse()?;
        let deadline = self.cluster.config.operation_deadline();
        let list = || self.cluster.list_regions(&table, deadline);
        let rows = self.retry("listing regions", deadline, list).await?;
        let mut regions: Vec<_> = rows.into_iter().map(RegionStatus::new).collect();
        if regions.is_empty() {
            return Err(Error::NoTable { table });
        }
        regions.sort_by(|a, b| a.start.cmp(&b.start));
        self.add_loads(&table, &mut regions).await;
        Ok(regions)
    }

    /// Adds the load of each region. Regions on servers that do not respond have none.
    async fn add_loads(&self, table: &TableName, regions: &mut [RegionStatus]) {
        let servers: BTreeSet<_> = regions.iter().filter_map(|r| r.server.clone()).collect();
        let mut loads = HashMap::new();
        for server in servers {
            let request = GetRegionLoadRequest { table_name: Some(table.to_proto()) };
            let response = self.call_region_server(&server, "GetRegionLoad", &request).await;
            let response: GetRegionLoadResponse = response.unwrap_or_default();
            let by_name = |load: RegionLoad| (load.region_specifier.value.clone(), load);
            loads.extend(response.region_loads.into_iter().map(by_name));
        }
        for region in regions {
            region.load = loads.get(&region.name).map(Load::from_proto);
        }
    }

    /// Flushes the memstores of all regions of a table.
    ///
    /// # Errors
    /// Fails if the table does not exist, or a server does not respond.
    pub async fn flush(&self, table: &str) -> Result<(), Error> {
        for region in self.regions(table).await? {
            let Some(server) = region.server else { continue };
            let request = FlushRegionRequest { region: RegionSpecifier::name(&region.name) };
            let _: Empty = self.call_region_server(&server, "FlushRegion", &request).await?;
        }
        Ok(())
    }

    /// Splits a region in two, of which the second starts at `row`.
    ///
    /// # Errors
    /// Fails if the row is not within the region, or the region cannot be split now.
    pub async fn split(&self, region: &RegionStatus, row: impl Into<Bytes>) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let (region_info, split_row) = (region.info.clone(), Some(row.into()));
        let request = SplitRegionRequest { region_info, split_row, nonce_group, nonce };
        self.run_procedure("SplitRegion", &request).await
    }

    /// Merges two adjacent regions.
    ///
    /// # Errors
    /// Fails if the regions are not adjacent, or one cannot be merged now: for example, after a split it still shares
    /// files with the other half.
    pub async fn merge(&self, first: &RegionStatus, second: &RegionStatus) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let region = [first, second].map(|region| RegionSpecifier::encoded(region.encoded_name()));
        let request = MergeTableRegionsRequest { region: region.into(), nonce_group, nonce };
        self.run_procedure("MergeTableRegions", &request).await
    }

    /// Starts to move a region to a server with an address as in [`Admin::regions`]. Does not wait for the end.
    ///
    /// # Errors
    /// Fails if the server is not live, or the region no longer exists.
    pub async fn move_to(&self, region: &RegionStatus, server: &Server) -> Result<(), Error> {
        let servers = self.region_servers().await?;
        let is_dest = |name: &ServerName| Server::from_proto(name).as_ref() == Some(server);
        let dest = servers.into_iter().find(is_dest);
        let dest = dest.ok_or_else(|| {
            Error::input(format!("{server} is not a live region server of this cluster"))
        })?;
        let specifier = RegionSpecifier::encoded(region.encoded_name());
        let request = MoveRegionRequest { region: specifier, dest_server_name: Some(dest) };
        let _: Empty = self.call("MoveRegion", &request).await?;
        Ok(())
    }

    /// Returns all live region servers, from the master: the registry of a region server lists only some servers of a
    /// large cluster, without itself.
    async fn region_servers(&self) -> Result<Vec<ServerName>, Error> {
        let options = vec![GetClusterStatusRequest::LIVE_SERVERS];
        let response: GetClusterStatusResponse =
            self.call("GetClusterStatus", &GetClusterStatusRequest { options }).await?;
        Ok(response.cluster_status.live_servers.into_iter().map(|info| info.server).collect())
    }

    async fn call_region_server<M: Message, R: Message + Default>(
        &self,
        server: &Server,
        method: &'static str,
        request: &M,
    ) -> Result<R, Error> {
        let config = &self.cluster.config;
        let deadline = config.call_deadline(config.operation_deadline());
        let call = Call::new(method, request, deadline);
        Ok(self.cluster.connections.call(server, Service::Region, call).await?.0)
    }
}

impl RegionStatus {
    fn new(row: MetaRow) -> Self {
        let (start, end) = (row.start(), row.end());
        let MetaRow { name, server, info } = row;
        Self { name, start, end, server, load: None, info }
    }

    /// Returns the encoded part of the name, which is a hash of the rest.
    pub fn encoded_name(&self) -> &str {
        // The start row within the name may not be UTF-8.
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
