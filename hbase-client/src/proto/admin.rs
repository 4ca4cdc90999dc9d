//! Messages of the administration of tables and regions.

use bytes::Bytes;
use prost::Message;

use super::common::{RegionInfo, RegionSpecifier, ServerName, TableName, TableSchema};
use super::rpc::ForeignException;

#[derive(Clone, PartialEq, Message)]
pub struct CreateTableRequest {
    #[prost(message, required, tag = "1")]
    pub table_schema: TableSchema,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub split_keys: Vec<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

/// The request of `DeleteTable`, `EnableTable` and `DisableTable`.
#[derive(Clone, PartialEq, Message)]
pub struct TableRequest {
    #[prost(message, required, tag = "1")]
    pub table_name: TableName,
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
}

/// The response to a request that starts a procedure.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ProcedureResponse {
    #[prost(uint64, optional, tag = "1")]
    pub proc_id: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetProcedureResultRequest {
    #[prost(uint64, required, tag = "1")]
    pub proc_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetProcedureResultResponse {
    /// 0 unknown, 1 running, 2 finished.
    #[prost(int32, required, tag = "1")]
    pub state: i32,
    #[prost(message, optional, tag = "5")]
    pub exception: Option<ForeignException>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableDescriptorsRequest {
    #[prost(message, repeated, tag = "1")]
    pub table_names: Vec<TableName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableDescriptorsResponse {
    #[prost(message, repeated, tag = "1")]
    pub table_schema: Vec<TableSchema>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetTableNamesResponse {
    #[prost(message, repeated, tag = "1")]
    pub table_names: Vec<TableName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetClusterStatusRequest {
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub options: Vec<i32>,
}

impl GetClusterStatusRequest {
    pub const LIVE_SERVERS: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub struct GetClusterStatusResponse {
    #[prost(message, required, tag = "1")]
    pub cluster_status: ClusterStatus,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClusterStatus {
    #[prost(message, repeated, tag = "2")]
    pub live_servers: Vec<LiveServerInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LiveServerInfo {
    #[prost(message, required, tag = "1")]
    pub server: ServerName,
}

#[derive(Clone, PartialEq, Message)]
pub struct MoveRegionRequest {
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    #[prost(message, optional, tag = "2")]
    pub dest_server_name: Option<ServerName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SplitRegionRequest {
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub split_row: Option<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MergeTableRegionsRequest {
    #[prost(message, repeated, tag = "1")]
    pub region: Vec<RegionSpecifier>,
    #[prost(uint64, optional, tag = "4")]
    pub nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub nonce: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetRegionLoadRequest {
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetRegionLoadResponse {
    #[prost(message, repeated, tag = "1")]
    pub region_loads: Vec<RegionLoad>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RegionLoad {
    #[prost(message, required, tag = "1")]
    pub region_specifier: RegionSpecifier,
    #[prost(uint32, optional, tag = "5")]
    pub storefile_size_mb: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub mem_store_size_mb: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    pub read_requests: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub write_requests: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FlushRegionRequest {
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
}
