//! Tables, regions and servers.

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct TableName {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub namespace: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub qualifier: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegionInfo {
    #[prost(uint64, required, tag = "1")]
    pub region_id: u64,
    #[prost(message, required, tag = "2")]
    pub table_name: TableName,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub start_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub end_key: Option<Bytes>,
    #[prost(bool, optional, tag = "5")]
    pub offline: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub split: Option<bool>,
    #[prost(int32, optional, tag = "7")]
    pub replica_id: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RegionLocation {
    #[prost(message, required, tag = "1")]
    pub region_info: RegionInfo,
    #[prost(message, optional, tag = "2")]
    pub server_name: Option<ServerName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerName {
    #[prost(string, required, tag = "1")]
    pub host_name: String,
    #[prost(uint32, optional, tag = "2")]
    pub port: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    pub start_code: Option<u64>,
}

/// A region by its name (type 1) or its encoded name (type 2).
#[derive(Clone, PartialEq, Message)]
pub struct RegionSpecifier {
    #[prost(int32, required, tag = "1")]
    pub r#type: i32,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub value: Bytes,
}

impl RegionSpecifier {
    pub const NAME: u8 = 1;
    const ENCODED_NAME: u8 = 2;

    pub fn name(name: &Bytes) -> Self {
        Self { r#type: Self::NAME.into(), value: name.clone() }
    }

    pub fn encoded(name: &str) -> Self {
        Self { r#type: Self::ENCODED_NAME.into(), value: Bytes::copy_from_slice(name.as_bytes()) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct NameBytesPair {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NameStringPair {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(string, required, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct BytesBytesPair {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub first: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub second: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableSchema {
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableName>,
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<BytesBytesPair>,
    #[prost(message, repeated, tag = "3")]
    pub column_families: Vec<ColumnFamilySchema>,
    #[prost(message, repeated, tag = "4")]
    pub configuration: Vec<NameStringPair>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ColumnFamilySchema {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<BytesBytesPair>,
    #[prost(message, repeated, tag = "3")]
    pub configuration: Vec<NameStringPair>,
}

/// The state of a table in `hbase:meta`: 0 enabled, 1 disabled, 2 disabling, 3 enabling.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TableState {
    #[prost(int32, required, tag = "1")]
    pub state: i32,
}

impl TableState {
    pub const ENABLED: Self = Self { state: 0 };
    pub const DISABLED: Self = Self { state: 1 };
    pub const DISABLING: Self = Self { state: 2 };
    pub const ENABLING: Self = Self { state: 3 };
}
