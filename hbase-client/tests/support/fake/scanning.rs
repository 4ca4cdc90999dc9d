//! Scanners of the scripted servers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use hbase_client::proto::scan::{Scan, ScanRequest, ScanResponse};
use prost::Message;

use super::model::{META, Model, put_cell};
use super::{Heard, Reply};

#[derive(Debug)]
pub struct Scanners {
    open: HashMap<u64, Scanner>,
    opened: u64,
    /// Cells of an answer: rows are cut where it is full.
    pub answer_cells: usize,
    /// Empty answers before each that has something.
    pub heartbeats: usize,
}

impl Default for Scanners {
    fn default() -> Self {
        Self { open: HashMap::new(), opened: 0, answer_cells: 700, heartbeats: 0 }
    }
}

#[derive(Debug)]
struct Scanner {
    region: Bytes,
    next_call_seq: u64,
    /// What it has still to say, a cell each.
    cells: VecDeque<(Bytes, Bytes, Bytes)>,
    rows_left: Option<usize>,
    heartbeats_left: usize,
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
    pub fn scan(&mut self, heard: &Heard) -> Reply {
        let request = ScanRequest::decode(heard.param.clone()).expect("a scan");
        let region = request.region.as_ref().map(|region| region.value.clone());
        if region.as_deref() == Some(META) {
            return self.scan_meta(&request);
        }
        if request.close_scanner == Some(true) {
            self.scanners.open.remove(&request.scanner_id.unwrap_or(0));
            return Reply::answer(&ScanResponse::default());
        }
        let id = match (request.scanner_id, region) {
            (Some(id), _) => id,
            (None, Some(region)) => match self.open(heard, &request, region) {
                Ok(id) => id,
                Err(class) => return Reply::exception(class),
            },
            (None, None) => panic!("a scan of nothing"),
        };
        self.go_on(id, &request, &heard.server)
    }

    fn open(
        &mut self,
        heard: &Heard,
        request: &ScanRequest,
        region: Bytes,
    ) -> Result<u64, &'static str> {
        let Some(served) = self.serving(&heard.server, &region) else {
            return Err("org.apache.hadoop.hbase.NotServingRegionException");
        };
        let scan = request.scan.clone().expect("what is scanned");
        let rows = in_range(&self.rows, &scan).filter(|(row, _)| served.contains(row));
        let cell = |(row, cells): (&Bytes, &BTreeMap<Bytes, Bytes>)| {
            let row = row.clone();
            let cells = cells.clone();
            cells.into_iter().map(move |(qualifier, value)| (row.clone(), qualifier, value))
        };
        let cells = rows.flat_map(cell).collect();
        self.scanners.opened += 1;
        let scanner = Scanner {
            region,
            next_call_seq: 0,
            cells,
            rows_left: request.limit_of_rows.filter(|&rows| rows > 0).map(|rows| rows as usize),
            heartbeats_left: self.scanners.heartbeats,
        };
        self.scanners.open.insert(self.scanners.opened, scanner);
        Ok(self.scanners.opened)
    }

    fn go_on(&mut self, id: u64, request: &ScanRequest, server: &str) -> Reply {
        let (most, heartbeats) = (self.scanners.answer_cells, self.scanners.heartbeats);
        let region = self.scanners.open.get(&id).map(|scanner| scanner.region.clone());
        let is_served =
            region.as_ref().is_some_and(|region| self.serving(server, region).is_some());
        let Some(scanner) = self.scanners.open.get_mut(&id) else {
            return Reply::exception("org.apache.hadoop.hbase.UnknownScannerException");
        };
        if !is_served {
            return Reply::exception("org.apache.hadoop.hbase.NotServingRegionException");
        }
        if request.next_call_seq != Some(scanner.next_call_seq) {
            return Reply::exception(
                "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException",
            );
        }
        scanner.next_call_seq += 1;
        let mut answer =
            ScanResponse { scanner_id: Some(id), more_results: Some(true), ..Default::default() };
        if scanner.heartbeats_left > 0 {
            scanner.heartbeats_left -= 1;
            (answer.heartbeat_message, answer.more_results_in_region) = (Some(true), Some(true));
            return Reply::answer(&answer);
        }
        scanner.heartbeats_left = heartbeats;
        let cells = scanner.answer(most, &mut answer);
        if answer.more_results_in_region == Some(false) || answer.more_results == Some(false) {
            self.scanners.open.remove(&id);
        }
        Reply::Answer { message: answer.encode_to_vec(), cells }
    }

    fn scan_meta(&mut self, request: &ScanRequest) -> Reply {
        let scan = request.scan.clone().expect("what is scanned");
        let mut rows = self.meta_rows();
        let is_of_state = scan.column[0].family == "table";
        if is_of_state {
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
        let (mut out, family) = (Vec::new(), if is_of_state { &b"table"[..] } else { b"info" });
        let mut answer = ScanResponse { more_results: Some(false), ..ScanResponse::default() };
        for (row, columns) in found {
            for (qualifier, value) in columns {
                put_cell(row, family, qualifier, value, &mut out);
            }
            answer.cells_per_result.push(columns.len() as u32);
            answer.partial_flag_per_result.push(false);
        }
        Reply::Answer { message: answer.encode_to_vec(), cells: out.into() }
    }
}

impl Scanner {
    fn answer(&mut self, most: usize, answer: &mut ScanResponse) -> Bytes {
        let (mut out, mut current, mut cells) = (Vec::new(), None, 0);
        while cells < most && self.rows_left != Some(0) {
            let Some((row, qualifier, value)) = self.cells.pop_front() else { break };
            put_cell(&row, b"d", &qualifier, &value, &mut out);
            cells += 1;
            if current.as_ref() != Some(&row) {
                answer.cells_per_result.push(0);
                answer.partial_flag_per_result.push(false);
            }
            *answer.cells_per_result.last_mut().expect("a result") += 1;
            let goes_on = self.cells.front().is_some_and(|next| next.0 == row);
            *answer.partial_flag_per_result.last_mut().expect("a result") = goes_on;
            if let Some(left) = self.rows_left.as_mut().filter(|_| !goes_on) {
                *left -= 1;
            }
            current = Some(row);
        }
        answer.more_results = Some(self.rows_left != Some(0));
        answer.more_results_in_region = Some(!self.cells.is_empty());
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
