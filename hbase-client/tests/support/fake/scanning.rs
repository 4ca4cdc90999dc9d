//! Scanners of the in-memory servers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use hbase_client::proto::scan::{Scan, ScanRequest, ScanResponse};
use prost::Message;

use super::model::{META, Model, NOT_SERVING, put_cell};
use super::{Call, Reply};

#[derive(Debug)]
pub struct Scanners {
    open: HashMap<u64, Scanner>,
    opened: u64,
    /// The maximum number of cells in a response. Rows are split at this limit.
    pub response_cells: usize,
    /// The number of heartbeats before each response with rows.
    pub heartbeats: usize,
}

impl Default for Scanners {
    fn default() -> Self {
        Self { open: HashMap::new(), opened: 0, response_cells: 700, heartbeats: 0 }
    }
}

#[derive(Debug)]
struct Scanner {
    region: Bytes,
    next_call_seq: u64,
    /// The remaining cells: row, qualifier and value.
    cells: VecDeque<(Bytes, Bytes, Bytes)>,
    remaining_rows: Option<usize>,
    remaining_heartbeats: usize,
}

impl Scanners {
    pub fn forget_all(&mut self) {
        self.open.clear();
    }

    pub fn count(&self) -> usize {
        self.open.len()
    }
}

impl Model {
    pub fn scan(&mut self, call: &Call) -> Reply {
        let request = ScanRequest::decode(call.param.clone()).expect("the scan request is valid");
        let region = request.region.as_ref().map(|region| region.value.clone());
        if region.as_deref() == Some(META) {
            return self.scan_meta(&request);
        }
        if request.close_scanner == Some(true) {
            self.scanners.open.remove(&request.scanner_id.unwrap_or(0));
            return Reply::response(&ScanResponse::default());
        }
        let id = match (request.scanner_id, region) {
            (Some(id), _) => id,
            (None, Some(region)) => match self.open(call, &request, region) {
                Ok(id) => id,
                Err(class) => return Reply::exception(class),
            },
            (None, None) => panic!("a scan request needs a region or a scanner"),
        };
        self.next_results(id, &request, &call.server)
    }

    fn open(
        &mut self,
        call: &Call,
        request: &ScanRequest,
        region: Bytes,
    ) -> Result<u64, &'static str> {
        let served = self.serving(&call.server, &region).ok_or(NOT_SERVING)?;
        let scan = request.scan.clone().expect("the request has a scan");
        let rows = in_range(&self.rows, &scan).filter(|(row, _)| served.contains(row));
        let cell = |(row, cells): (&Bytes, &BTreeMap<Bytes, Bytes>)| {
            let (row, cells) = (row.clone(), cells.clone());
            cells.into_iter().map(move |(qualifier, value)| (row.clone(), qualifier, value))
        };
        let cells = rows.flat_map(cell).collect();
        let limit = request.limit_of_rows.filter(|&rows| rows > 0);
        self.scanners.opened += 1;
        let scanner = Scanner {
            region,
            next_call_seq: 0,
            cells,
            remaining_rows: limit.map(|rows| rows as usize),
            remaining_heartbeats: self.scanners.heartbeats,
        };
        self.scanners.open.insert(self.scanners.opened, scanner);
        Ok(self.scanners.opened)
    }

    fn next_results(&mut self, id: u64, request: &ScanRequest, server: &str) -> Reply {
        let (cells_max, heartbeats) = (self.scanners.response_cells, self.scanners.heartbeats);
        let region = self.scanners.open.get(&id).map(|scanner| scanner.region.clone());
        let is_served =
            region.as_ref().is_some_and(|region| self.serving(server, region).is_some());
        let Some(scanner) = self.scanners.open.get_mut(&id) else {
            return Reply::exception("UnknownScannerException");
        };
        if !is_served {
            return Reply::exception(NOT_SERVING);
        }
        if request.next_call_seq != Some(scanner.next_call_seq) {
            return Reply::exception("exceptions.OutOfOrderScannerNextException");
        }
        scanner.next_call_seq += 1;
        let mut response =
            ScanResponse { scanner_id: Some(id), more_results: Some(true), ..Default::default() };
        if scanner.remaining_heartbeats > 0 {
            scanner.remaining_heartbeats -= 1;
            (response.heartbeat_message, response.more_results_in_region) =
                (Some(true), Some(true));
            return Reply::response(&response);
        }
        scanner.remaining_heartbeats = heartbeats;
        let cells = scanner.fill(cells_max, &mut response);
        if response.more_results_in_region == Some(false) || response.more_results == Some(false) {
            self.scanners.open.remove(&id);
        }
        Reply::Response { message: response.encode_to_vec(), cells }
    }

    fn scan_meta(&mut self, request: &ScanRequest) -> Reply {
        let scan = request.scan.clone().expect("the request has a scan");
        let mut rows = self.meta_rows();
        let is_state_scan = scan.column[0].family == "table";
        if is_state_scan {
            let row = |state| (Bytes::from(super::TABLE), vec![(&b"state"[..], state)]);
            rows = self.table_state().map(row).into_iter().collect();
        }
        let mut found: Vec<_> = match scan.reversed.unwrap_or(false) {
            false => in_range(&rows, &scan).collect(),
            true => {
                let (start, stop) = (scan.start_row.clone(), scan.stop_row.clone());
                let swapped = Scan { start_row: stop, stop_row: start, ..scan };
                let mut found: Vec<_> = in_range(&rows, &swapped).collect();
                found.reverse();
                found
            }
        };
        found.truncate(request.number_of_rows.unwrap_or(0) as usize);
        let (mut out, family) = (Vec::new(), if is_state_scan { &b"table"[..] } else { b"info" });
        let mut response = ScanResponse { more_results: Some(false), ..ScanResponse::default() };
        for (row, columns) in found {
            for (qualifier, value) in columns {
                put_cell(row, family, qualifier, value, &mut out);
            }
            response.cells_per_result.push(columns.len() as u32);
            response.partial_flag_per_result.push(false);
        }
        Reply::Response { message: response.encode_to_vec(), cells: out.into() }
    }
}

impl Scanner {
    fn fill(&mut self, cells_max: usize, response: &mut ScanResponse) -> Bytes {
        let (mut out, mut current, mut cells) = (Vec::new(), None, 0);
        while cells < cells_max && self.remaining_rows != Some(0) {
            let Some((row, qualifier, value)) = self.cells.pop_front() else { break };
            put_cell(&row, b"d", &qualifier, &value, &mut out);
            cells += 1;
            if current.as_ref() != Some(&row) {
                response.cells_per_result.push(0);
                response.partial_flag_per_result.push(false);
            }
            *response.cells_per_result.last_mut().expect("a result was added") += 1;
            let is_partial = self.cells.front().is_some_and(|next| next.0 == row);
            *response.partial_flag_per_result.last_mut().expect("a result was added") = is_partial;
            if let Some(rows) = self.remaining_rows.as_mut().filter(|_| !is_partial) {
                *rows -= 1;
            }
            current = Some(row);
        }
        response.more_results = Some(self.remaining_rows != Some(0));
        response.more_results_in_region = Some(!self.cells.is_empty());
        out.into()
    }
}

fn in_range<'a, V>(
    rows: &'a BTreeMap<Bytes, V>,
    scan: &Scan,
) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a V)> + use<'a, V> {
    let (start, stop) = (scan.start_row.clone().unwrap_or_default(), scan.stop_row.clone());
    let start = match scan.include_start_row {
        Some(false) => Bound::Excluded(start),
        _ => Bound::Included(start),
    };
    let stop = match (stop, scan.include_stop_row) {
        (None, _) => Bound::Unbounded,
        (Some(stop), Some(true)) => Bound::Included(stop),
        (Some(stop), _) => Bound::Excluded(stop),
    };
    rows.range((start, stop))
}
