//! A cache of the region locations of one table. No I/O: callers insert found regions, and remove outdated ones.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::names::Server;

/// A region and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The name in `hbase:meta`: `table,start,id.encoded.`
    pub name: Bytes,
    /// The time of its creation. Of two overlapping regions, the one with the greater id is current.
    pub id: u64,
    /// The first row; empty for the first region.
    pub start: Bytes,
    /// The row after the last; empty for the last region.
    pub end: Bytes,
    pub server: Server,
}

impl Region {
    /// Returns a region with this range and any name, for tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn example(start: &'static str, end: &'static str) -> Self {
        let server = Server { host: "h".into(), port: 1 };
        Self { name: "r".into(), id: 1, start: start.into(), end: end.into(), server }
    }

    pub fn contains(&self, row: &[u8]) -> bool {
        range_contains(&self.start, &self.end, row)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let starts_before_end = |a: &Self, b: &Self| b.end.is_empty() || a.start < b.end;
        starts_before_end(self, other) && starts_before_end(other, self)
    }
}

/// Returns whether a range of rows contains a row. An empty end is the end of the table.
pub fn range_contains(start: &[u8], end: &[u8], row: &[u8]) -> bool {
    start <= row && (end.is_empty() || row < end)
}

/// Regions of one table that do not overlap.
#[derive(Debug, Default)]
pub struct Locations {
    by_start: BTreeMap<Bytes, Arc<Region>>,
}

impl Locations {
    pub fn find(&self, row: &[u8]) -> Option<&Arc<Region>> {
        self.at_or_before(row).filter(|region| region.contains(row))
    }

    /// Returns the start of the gap between known regions that contains a row. Lookups of rows in the same gap are
    /// shared, because they may be for the same region.
    pub fn gap(&self, row: &[u8]) -> Bytes {
        self.at_or_before(row).map_or_else(Bytes::new, |region| region.end.clone())
    }

    fn at_or_before(&self, row: &[u8]) -> Option<&Arc<Region>> {
        let range = (Bound::Unbounded, Bound::Included(row));
        self.by_start.range::<[u8], _>(range).next_back().map(|(_, region)| region)
    }

    /// Inserts a region and removes those that it overlaps, unless one of them is newer: concurrent lookups may have
    /// read a later state.
    pub fn insert(&mut self, found: Arc<Region>) {
        let stop =
            if found.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&found.end[..]) };
        let before_stop = self.by_start.range::<[u8], _>((Bound::Unbounded, stop)).rev();
        let overlapped = before_stop.take_while(|(_, region)| region.overlaps(&found));
        let overlapped: Vec<_> = overlapped.map(|(_, region)| region.clone()).collect();
        if overlapped.iter().any(|known| known.id > found.id) {
            return;
        }
        for region in overlapped {
            self.by_start.remove(&region.start);
        }
        self.by_start.insert(found.start.clone(), found);
    }

    /// Removes a region if it is unchanged since the caller used it: another caller may have located it again.
    pub fn forget(&mut self, used: &Region) {
        if self.is_unchanged(used) {
            self.by_start.remove(&used.start);
        }
    }

    /// Sets the server of a region that moved, if it is unchanged since the caller used it.
    pub fn set_server(&mut self, used: &Region, server: Server) {
        if self.is_unchanged(used) {
            let moved = Region { server, ..used.clone() };
            self.by_start.insert(moved.start.clone(), Arc::new(moved));
        }
    }

    fn is_unchanged(&self, used: &Region) -> bool {
        let known = self.by_start.get(&used.start);
        known.is_some_and(|known| known.name == used.name && known.server == used.server)
    }

    /// Removes all regions on a server.
    pub fn forget_server(&mut self, server: &Server) {
        self.by_start.retain(|_, region| region.server != *server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a region that is written as `start-end#id`, on the server with this port.
    fn region(text: &'static str, port: u16) -> Arc<Region> {
        let (range, id) = text.split_once('#').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        Arc::new(Region {
            name: format!("t,{start},{id}").into(),
            id: id.parse().unwrap(),
            server: Server::new("h", port).unwrap(),
            ..Region::example(start, end)
        })
    }

    fn locations(regions: &[&'static str]) -> Locations {
        let mut locations = Locations::default();
        regions.iter().for_each(|&text| locations.insert(region(text, 1)));
        locations
    }

    fn shown(locations: &Locations) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let show = |r: &Arc<Region>| format!("{}-{}#{}", text(&r.start), text(&r.end), r.id);
        locations.by_start.values().map(show).collect()
    }

    #[test]
    fn row_is_found_in_its_region_only() {
        let known = locations(&["-c#1", "c-f#1", "h-#1"]);
        let find = |row: &str| known.find(row.as_bytes()).map(|region| region.start.clone());
        assert_eq!(find(""), Some("".into()));
        assert_eq!(find("bzz"), Some("".into()));
        assert_eq!(find("c"), Some("c".into()));
        assert_eq!(find("f"), None);
        assert_eq!(find("gz"), None);
        assert_eq!(find("h"), Some("h".into()));
        assert_eq!(find("zzz"), Some("h".into()));
    }

    #[test]
    fn gap_is_the_same_for_all_rows_in_it() {
        let known = locations(&["b-c#1", "h-k#1"]);
        let gap = |row: &str| known.gap(row.as_bytes());
        assert_eq!([gap("a"), gap("")], ["", ""]);
        assert_eq!([gap("c"), gap("gz")], ["c", "c"]);
        assert_eq!([gap("k"), gap("z")], ["k", "k"]);
    }

    #[track_caller]
    fn check_insert(before: &[&'static str], found: &'static str, after: &[&str]) {
        let mut known = locations(before);
        known.insert(region(found, 1));
        assert_eq!(shown(&known), after);
    }

    #[test]
    fn newer_region_replaces_the_regions_that_it_overlaps() {
        // Daughters of a split replace the parent, and a merged region replaces its parents.
        check_insert(&["a-c#1", "c-f#1"], "a-b#2", &["a-b#2", "c-f#1"]);
        check_insert(&["a-c#1", "c-f#1"], "a-f#2", &["a-f#2"]);
        check_insert(&["-#1"], "m-#2", &["m-#2"]);
        check_insert(&["-c#1", "c-#1"], "-#2", &["-#2"]);
    }

    #[test]
    fn older_region_does_not_replace_newer_ones() {
        check_insert(&["a-b#2", "b-c#2"], "a-c#1", &["a-b#2", "b-c#2"]);
        check_insert(&["b-c#2"], "-#1", &["b-c#2"]);
        check_insert(&["a-b#2"], "b-c#1", &["a-b#2", "b-c#1"]);
    }

    #[test]
    fn region_found_on_another_server_replaces_the_cached_one() {
        let mut known = locations(&["a-c#1"]);
        known.insert(region("a-c#1", 2));
        assert_eq!(known.find(b"b").unwrap().server.port, 2);
    }

    #[test]
    fn region_is_forgotten_only_if_unchanged() {
        let mut known = locations(&["a-c#1"]);
        known.forget(&region("a-c#1", 9));
        known.forget(&region("a-c#7", 1));
        assert_eq!(shown(&known), ["a-c#1"]);
        known.forget(&region("a-c#1", 1));
        assert!(shown(&known).is_empty());
    }

    #[test]
    fn server_of_a_moved_region_is_set_only_if_unchanged() {
        let to = Server::new("h", 5).unwrap();
        let mut known = locations(&["a-c#1"]);
        known.set_server(&region("a-c#1", 9), to.clone());
        assert_eq!(known.find(b"b").unwrap().server.port, 1);
        known.set_server(&region("a-c#1", 1), to);
        assert_eq!(known.find(b"b").unwrap().server.port, 5);
    }

    #[test]
    fn forgetting_a_server_removes_only_its_regions() {
        let mut known = locations(&["a-b#1", "c-d#1"]);
        known.insert(region("b-c#1", 2));
        known.forget_server(&Server::new("h", 1).unwrap());
        assert_eq!(shown(&known), ["b-c#1"]);
    }
}
