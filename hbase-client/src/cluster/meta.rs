//! Rows of `hbase:meta`: the regions of a table, and their servers. No I/O.

use bytes::Bytes;
use prost::Message;

use super::location::Region;
use crate::names::{Server, TableName};
use crate::proto::common::{RegionInfo, TableState};
use crate::proto::data::Column;
use crate::proto::scan::Scan;
use crate::rows::Row;
use crate::wire::WireError;

const FAMILY: &[u8] = b"info";
/// The prefix of each stored message.
const MAGIC: &[u8] = b"PBUF";
/// The region states in which the listed server does not serve the region.
const CLOSED_STATES: [&[u8]; 3] = [b"CLOSED", b"OFFLINE", b"SPLIT"];

/// A region according to `hbase:meta`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaRow {
    pub name: Bytes,
    pub info: RegionInfo,
    /// `None` while the region is not open, such as a daughter region right after a split.
    pub server: Option<Server>,
}

impl MetaRow {
    /// Decodes a row. Returns `None` if it does not describe a region, or one that was split or merged and is still
    /// listed.
    ///
    /// # Errors
    /// Fails if the region info cannot be decoded.
    pub fn parse(row: &Row) -> Result<Option<Self>, WireError> {
        let Some(info) = row.value(FAMILY, b"regioninfo") else { return Ok(None) };
        let info = info
            .strip_prefix(MAGIC)
            .ok_or(WireError::Malformed("a region info lacks the prefix PBUF"))?;
        let info = RegionInfo::decode(info)
            .map_err(|error| WireError::unreadable("a region info in hbase:meta", error))?;
        if info.offline.unwrap_or(false) || info.split.unwrap_or(false) {
            return Ok(None);
        }
        let state = row.value(FAMILY, b"state").unwrap_or_default();
        let server = row.value(FAMILY, b"server").filter(|_| !CLOSED_STATES.contains(&state));
        let server = server.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        Ok(Some(Self { name: Bytes::copy_from_slice(row.key()), info, server }))
    }

    /// Returns the region of `hbase:meta` itself.
    pub fn for_meta(region: &Region) -> Self {
        let info = RegionInfo {
            region_id: region.id,
            table_name: TableName::meta().to_proto(),
            ..RegionInfo::default()
        };
        Self { name: region.name.clone(), info, server: Some(region.server.clone()) }
    }

    pub fn start(&self) -> Bytes {
        self.info.start_key.clone().unwrap_or_default()
    }

    pub fn end(&self) -> Bytes {
        self.info.end_key.clone().unwrap_or_default()
    }

    /// Returns the region with its server, if it has one.
    pub fn region(&self) -> Option<Region> {
        let server = self.server.clone()?;
        let (start, end) = (self.start(), self.end());
        Some(Region { name: self.name.clone(), id: self.info.region_id, start, end, server })
    }
}

/// Returns a reverse scan that starts at the region that contains the row.
pub fn scan_back_from(table: &TableName, row: &[u8]) -> Scan {
    // A region id consists of digits, all of which are less than `:`.
    let start = [table.to_string().as_bytes(), b",", row, b",:"].concat();
    let stop = Some(format!("{table},,").into());
    Scan { start_row: Some(start.into()), stop_row: stop, reversed: Some(true), ..region_scan() }
}

/// Returns a scan of the regions of a table that start at this row or after it.
pub fn scan_from(table: &TableName, row: &[u8]) -> Scan {
    let start = [table.to_string().as_bytes(), b",", row, b","].concat();
    // `-` is the byte after `,`.
    let stop = Some(format!("{table}-").into());
    Scan { start_row: Some(start.into()), stop_row: stop, ..region_scan() }
}

/// Returns a scan of the regions of a table after the one with this name.
pub fn scan_after(table: &TableName, name: Bytes) -> Scan {
    let start_row = Some(name);
    Scan { start_row, include_start_row: Some(false), ..scan_from(table, b"") }
}

fn region_scan() -> Scan {
    let family = Column { family: Bytes::from_static(FAMILY), qualifier: Vec::new() };
    Scan { column: vec![family], max_versions: Some(1), ..Scan::default() }
}

/// Returns a scan of the row with the state of a table.
pub fn scan_state(table: &TableName) -> Scan {
    let row = Bytes::from(table.to_string());
    let family = Column { family: Bytes::from_static(b"table"), qualifier: Vec::new() };
    Scan {
        column: vec![family],
        start_row: Some(row.clone()),
        stop_row: Some(row),
        include_stop_row: Some(true),
        ..Scan::default()
    }
}

/// Decodes the row of [`scan_state`].
pub fn parse_state(row: &Row) -> Option<TableState> {
    row.value(b"table", b"state").and_then(|state| TableState::decode(state).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cell::{Kind, Parts};

    fn row(key: &[u8], columns: &[(&[u8], &[u8])]) -> Row {
        let cell = |&(qualifier, value): &(&[u8], &[u8])| {
            let (family, timestamp, kind) = (FAMILY, 1, Kind::Put);
            Parts { row: key, family, qualifier, timestamp, kind, value }.cell().unwrap()
        };
        Row::new(columns.iter().map(cell).collect()).unwrap()
    }

    fn info(offline: bool, split: bool) -> Vec<u8> {
        let table: TableName = "t".parse().unwrap();
        let info = RegionInfo {
            region_id: 7,
            table_name: table.to_proto(),
            start_key: Some("b".into()),
            end_key: Some("d".into()),
            offline: Some(offline),
            split: Some(split),
            replica_id: Some(0),
        };
        [MAGIC, &info.encode_to_vec()].concat()
    }

    fn server(columns: &[(&[u8], &[u8])]) -> Option<Server> {
        MetaRow::parse(&row(b"t,b,7.x.", columns)).unwrap().unwrap().server
    }

    #[test]
    fn region_has_range_and_server() {
        let columns: [(&[u8], &[u8]); 2] =
            [(b"regioninfo", &info(false, false)), (b"server", b"h:5")];
        let read = MetaRow::parse(&row(b"t,b,7.x.", &columns)).unwrap().unwrap();
        let region = read.region().unwrap();
        assert_eq!((region.id, &region.start[..], &region.end[..]), (7, &b"b"[..], &b"d"[..]));
        assert_eq!((region.server, &region.name[..]), ("h:5".parse().unwrap(), &b"t,b,7.x."[..]));
    }

    #[test]
    fn split_parent_is_not_a_region() {
        for info in [info(true, false), info(false, true)] {
            let columns: [(&[u8], &[u8]); 2] = [(b"regioninfo", &info), (b"server", b"h:5")];
            assert_eq!(MetaRow::parse(&row(b"t,b,7.x.", &columns)), Ok(None));
        }
        assert_eq!(MetaRow::parse(&row(b"t", &[(b"state", b"x")])), Ok(None));
    }

    #[test]
    fn region_may_have_no_server() {
        let info = info(false, false);
        assert_eq!(server(&[(b"regioninfo", &info)]), None);
        assert_eq!(server(&[(b"regioninfo", &info), (b"server", b"")]), None);
        assert_eq!(
            server(&[(b"regioninfo", &info), (b"server", b"h:1"), (b"state", b"CLOSED")]),
            None
        );
        let opening: [(&[u8], &[u8]); 3] =
            [(b"regioninfo", &info), (b"server", b"h:1"), (b"state", b"OPENING")];
        assert_eq!(server(&opening), "h:1".parse().ok());
    }

    #[test]
    fn malformed_region_info_is_an_error() {
        for info in [&b"plain"[..], b"PBUF\xff"] {
            assert!(MetaRow::parse(&row(b"t,b,7.x.", &[(b"regioninfo", info)])).is_err());
        }
    }
}
