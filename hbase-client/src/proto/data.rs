//! Reads and writes of rows: `Multi` and its parts.

use bytes::Bytes;
use prost::Message;

use super::common::{NameBytesPair, RegionSpecifier};
use super::rpc::Empty;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Column {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    /// Empty for the whole family.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub qualifier: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Get {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub column: Vec<Column>,
    #[prost(message, optional, tag = "4")]
    pub filter: Option<Filter>,
    #[prost(uint32, optional, tag = "6")]
    pub max_versions: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub store_limit: Option<u32>,
}

/// A Java class name, and the serialized message of that class.
#[derive(Clone, PartialEq, Message)]
pub struct Filter {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub serialized_filter: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ColumnRangeFilter {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub min_column: Option<Bytes>,
    #[prost(bool, optional, tag = "2")]
    pub min_column_inclusive: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub max_column: Option<Bytes>,
    #[prost(bool, optional, tag = "4")]
    pub max_column_inclusive: Option<bool>,
}

/// A row: the number of its cells in the cell block.
#[derive(Clone, PartialEq, Message)]
pub struct Result {
    /// Cells outside of the cell block, which servers send only on connections without a codec.
    #[prost(message, repeated, tag = "1")]
    pub cell: Vec<Empty>,
    #[prost(int32, optional, tag = "2")]
    pub associated_cell_count: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Condition {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub family: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    /// 2: equal.
    #[prost(int32, optional, tag = "4")]
    pub compare_type: Option<i32>,
    #[prost(message, optional, tag = "5")]
    pub comparator: Option<Comparator>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Comparator {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub serialized_comparator: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct BinaryComparator {
    #[prost(message, required, tag = "1")]
    pub comparable: ByteArrayComparable,
}

#[derive(Clone, PartialEq, Message)]
pub struct ByteArrayComparable {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mutation {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
    /// 2: put, 3: delete.
    #[prost(int32, optional, tag = "2")]
    pub mutate_type: Option<i32>,
    #[prost(message, repeated, tag = "3")]
    pub column_value: Vec<ColumnValue>,
    #[prost(uint64, optional, tag = "4")]
    pub timestamp: Option<u64>,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<NameBytesPair>,
    #[prost(int32, optional, tag = "8")]
    pub associated_cell_count: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ColumnValue {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub qualifier_value: Vec<QualifierValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct QualifierValue {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub qualifier: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    /// 0: one version, 1: all versions, 2: a family, 3: one version of a family.
    #[prost(int32, optional, tag = "4")]
    pub delete_type: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Action {
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub mutation: Option<Mutation>,
    #[prost(message, optional, tag = "3")]
    pub get: Option<Get>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RegionAction {
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    #[prost(message, repeated, tag = "3")]
    pub action: Vec<Action>,
    /// Applies to all actions together.
    #[prost(message, optional, tag = "4")]
    pub condition: Option<Condition>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MultiRequest {
    #[prost(message, repeated, tag = "1")]
    pub region_action: Vec<RegionAction>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MultiResponse {
    /// One for each region action, in the same order.
    #[prost(message, repeated, tag = "1")]
    pub region_action_result: Vec<RegionActionResult>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RegionActionResult {
    #[prost(message, repeated, tag = "1")]
    pub result_or_exception: Vec<ResultOrException>,
    /// Set if the whole region action failed.
    #[prost(message, optional, tag = "2")]
    pub exception: Option<NameBytesPair>,
    /// True if the condition held.
    #[prost(bool, optional, tag = "3")]
    pub processed: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResultOrException {
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub result: Option<Result>,
    #[prost(message, optional, tag = "3")]
    pub exception: Option<NameBytesPair>,
}
