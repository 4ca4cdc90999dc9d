//! The model of the in-memory servers: regions, and rows with one family, `d`. It replies like HBase unless a script
//! replies otherwise.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use hbase_client::proto::common::{
    NameBytesPair, RegionInfo, RegionLocation, ServerName, TableName, TableState,
};
use hbase_client::proto::data::{
    Action, BinaryComparator, Condition, MultiRequest, MultiResponse, RegionAction,
    RegionActionResult, Result as RowResult, ResultOrException,
};
use hbase_client::proto::rpc::{
    Empty, GetActiveMasterResponse, GetBootstrapNodesResponse, GetMetaRegionLocationsResponse,
};
use hbase_client::wire::cell::{Cell, Kind, Parts};
use prost::Message;

use super::scanning::Scanners;
use super::{Call, HBASE, Reply};

pub const TABLE: &str = "t";
pub const META: &[u8] = b"hbase:meta,,1";
pub const NOT_SERVING: &str = "NotServingRegionException";

#[derive(Debug, Clone)]
pub struct FakeRegion {
    pub start: &'static str,
    pub end: &'static str,
    pub id: u64,
    /// The server according to `hbase:meta`; empty for none.
    pub listed: String,
    /// The server that serves it.
    pub server: String,
    /// True if it was split, and `hbase:meta` still lists it.
    pub is_parent: bool,
}

impl FakeRegion {
    pub fn new(start: &'static str, end: &'static str, id: u64, server: &str) -> Self {
        let (listed, server) = (server.to_owned(), server.to_owned());
        Self { start, end, id, listed, server, is_parent: false }
    }

    pub fn name(&self) -> String {
        format!("{TABLE},{},{}.encoded.", self.start, self.id)
    }

    pub fn contains(&self, row: &[u8]) -> bool {
        row >= self.start.as_bytes() && (self.end.is_empty() || row < self.end.as_bytes())
    }
}

/// Qualifier and value.
type Cells = BTreeMap<Bytes, Bytes>;

pub struct Model {
    pub regions: Vec<FakeRegion>,
    pub rows: BTreeMap<Bytes, Cells>,
    /// The number of writes of each row.
    pub writes: BTreeMap<Bytes, usize>,
    /// Values of applied conditional changes.
    pub history: Vec<Bytes>,
    /// Servers that refuse connections and close open ones at the next call.
    pub down: HashSet<String>,
    /// Services that no server provides: servers close connections to them.
    pub unknown: HashSet<&'static str>,
    pub master: Option<String>,
    /// The servers that the registry lists.
    pub nodes: Vec<&'static str>,
    /// The state of the table: 0 enabled, 1 disabled, 2 disabling, 3 enabling; `None` if it does not exist.
    pub state: Option<i32>,
    pub scanners: Scanners,
}

impl Model {
    pub fn new() -> Self {
        Self {
            regions: vec![
                FakeRegion::new("", "h", 1, "s1:1"),
                FakeRegion::new("h", "p", 1, "s2:1"),
                FakeRegion::new("p", "", 1, "s3:1"),
            ],
            rows: BTreeMap::new(),
            writes: BTreeMap::new(),
            history: Vec::new(),
            down: HashSet::new(),
            unknown: HashSet::new(),
            master: Some("s1:1".to_owned()),
            nodes: vec!["s2:1", "s3:1"],
            state: Some(0),
            scanners: Scanners::default(),
        }
    }

    /// Adds rows `a00` to `z99` with three cells each.
    pub fn fill(&mut self) {
        for letter in 'a'..='z' {
            for number in 0..100 {
                let row = format!("{letter}{number:02}");
                let cell = |q: &'static str| (Bytes::from(q), Bytes::from(format!("{row}{q}")));
                self.rows.insert(row.clone().into(), ["x", "y", "z"].map(cell).into());
            }
        }
    }

    /// Moves a region, and updates `hbase:meta`.
    pub fn move_region(&mut self, index: usize, server: &str) {
        self.regions[index].server = server.to_owned();
        self.regions[index].listed = server.to_owned();
    }

    pub fn reply(&mut self, call: &Call) -> Reply {
        match &*call.method {
            "GetClusterId" => Reply::response(&Empty {}),
            "GetBootstrapNodes" => {
                let server_name = self.nodes.iter().map(|name| server_name(name)).collect();
                Reply::response(&GetBootstrapNodesResponse { server_name })
            }
            "GetActiveMaster" => {
                let server_name = self.master.as_deref().map(server_name);
                Reply::response(&GetActiveMasterResponse { server_name })
            }
            "GetMetaRegionLocations" => Reply::response(&meta_location()),
            "Multi" => self.multi(call),
            "Scan" => self.scan(call),
            other => panic!("unexpected method {other}"),
        }
    }

    /// Returns the region with this name, if it is on this server.
    pub fn serving(&self, server: &str, name: &[u8]) -> Option<&FakeRegion> {
        let is_named = |region: &&FakeRegion| region.name().as_bytes() == name && !region.is_parent;
        self.regions.iter().find(is_named).filter(|region| region.server == server)
    }

    fn multi(&mut self, call: &Call) -> Reply {
        let request = MultiRequest::decode(call.param.clone()).expect("the multi request is valid");
        let (mut cells, mut out) = (call.cells.clone(), Vec::new());
        let mut response = MultiResponse::default();
        for part in request.region_action {
            let is_served = self.serving(&call.server, &part.region.value).is_some();
            // The cells of actions that are not executed must be skipped in the cell block.
            let result = match is_served {
                true => self.run_region_action(part, &mut cells, &mut out),
                false => {
                    skip(&part, &mut cells);
                    RegionActionResult { exception: Some(pair(NOT_SERVING)), ..Default::default() }
                }
            };
            response.region_action_result.push(result);
        }
        Reply::Response { message: response.encode_to_vec(), cells: out.into() }
    }

    fn run_region_action(
        &mut self,
        part: RegionAction,
        cells: &mut Bytes,
        out: &mut Vec<u8>,
    ) -> RegionActionResult {
        let processed = part.condition.as_ref().map(|condition| self.is_met(condition));
        let mut result = RegionActionResult { processed, ..RegionActionResult::default() };
        for action in part.action {
            let index = action.index;
            let done = match processed {
                Some(false) => RowResult::default(),
                _ => self.run_action(action, cells, out),
            };
            let done = ResultOrException { index, result: Some(done), exception: None };
            result.result_or_exception.push(done);
        }
        result
    }

    fn run_action(&mut self, action: Action, cells: &mut Bytes, out: &mut Vec<u8>) -> RowResult {
        if let Some(get) = action.get {
            let count = self.put_row(&get.row, out);
            return RowResult { associated_cell_count: Some(count), ..RowResult::default() };
        }
        let mutation = action.mutation.expect("the action is a get or a mutation");
        let row = mutation.row.expect("the mutation has a row");
        *self.writes.entry(row.clone()).or_default() += 1;
        let stored = self.rows.entry(row).or_default();
        for _ in 0..mutation.associated_cell_count.unwrap_or(0) {
            let cell = Cell::take(cells).expect("the block has another cell");
            let qualifier = Bytes::copy_from_slice(cell.qualifier());
            stored.insert(qualifier, cell.value_bytes());
        }
        for value in mutation.column_value.iter().flat_map(|column| &column.qualifier_value) {
            let bytes = |field: &Option<Bytes>| field.clone().unwrap_or_default();
            self.history.push(bytes(&value.value));
            stored.insert(bytes(&value.qualifier), bytes(&value.value));
        }
        RowResult::default()
    }

    fn is_met(&self, condition: &Condition) -> bool {
        let comparator = condition.comparator.as_ref().expect("the condition has a comparator");
        let expected =
            comparator.serialized_comparator.clone().expect("the comparator has a value");
        let expected =
            BinaryComparator::decode(expected).expect("the comparator is binary").comparable.value;
        let qualifier = condition.qualifier.clone().unwrap_or_default();
        let found = self.rows.get(&condition.row).and_then(|cells| cells.get(&qualifier));
        found.cloned().unwrap_or_default() == expected.unwrap_or_default()
    }

    pub fn put_row(&self, row: &Bytes, out: &mut Vec<u8>) -> i32 {
        let cells = self.rows.get(row).into_iter().flatten();
        cells.map(|(qualifier, value)| put_cell(row, b"d", qualifier, value, out)).count() as i32
    }

    /// Returns the rows of the table in `hbase:meta`, by key: region info and server.
    pub fn meta_rows(&self) -> BTreeMap<Bytes, Vec<(&'static [u8], Bytes)>> {
        let row = |region: &FakeRegion| {
            let info = RegionInfo {
                region_id: region.id,
                table_name: table_name(TABLE),
                start_key: Some(region.start.into()),
                end_key: Some(region.end.into()),
                offline: Some(region.is_parent),
                split: Some(region.is_parent),
                replica_id: Some(0),
            };
            let info = [b"PBUF", &info.encode_to_vec()[..]].concat();
            let server = Bytes::from(region.listed.clone());
            let columns: Vec<(&'static [u8], Bytes)> =
                vec![(b"regioninfo", info.into()), (b"server", server)];
            (Bytes::from(region.name()), columns)
        };
        self.regions.iter().map(row).collect()
    }

    pub fn table_state(&self) -> Option<Bytes> {
        self.state.map(|state| TableState { state }.encode_to_vec().into())
    }
}

/// Removes the cells of a region action from the block.
fn skip(part: &RegionAction, cells: &mut Bytes) {
    let counts = part.action.iter().filter_map(|action| action.mutation.as_ref());
    let count: i32 = counts.filter_map(|mutation| mutation.associated_cell_count).sum();
    (0..count).for_each(|_| drop(Cell::take(cells).expect("the block has another cell")));
}

pub fn put_cell(row: &[u8], family: &[u8], qualifier: &[u8], value: &[u8], out: &mut Vec<u8>) {
    Parts { row, family, qualifier, timestamp: 1, kind: Kind::Put, value }.put(out);
}

/// Returns an exception of this class, in the package of HBase, for a region or a row.
fn pair(class: &str) -> NameBytesPair {
    let name = format!("{HBASE}.{class}");
    NameBytesPair { value: Some(format!("{name}: as the test wants").into()), name }
}

pub fn server_name(name: &str) -> ServerName {
    let (host, port) = name.split_once(':').expect("the name is host:port");
    let port = Some(port.parse().expect("the port is a number"));
    ServerName { host_name: host.to_owned(), port, start_code: Some(1) }
}

fn table_name(name: &str) -> TableName {
    TableName { namespace: "default".into(), qualifier: Bytes::copy_from_slice(name.as_bytes()) }
}

/// Returns the location of `hbase:meta`, which is on the second server.
fn meta_location() -> GetMetaRegionLocationsResponse {
    let region_info =
        RegionInfo { region_id: 1, table_name: table_name("meta"), ..Default::default() };
    let server_name = Some(server_name("s2:1"));
    let location = RegionLocation { region_info, server_name };
    GetMetaRegionLocationsResponse { meta_locations: vec![location] }
}
