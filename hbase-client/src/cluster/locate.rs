//! Locates regions: in the cache, or else in `hbase:meta`, where concurrent callers share one lookup.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Cluster;
use super::location::{Region, range_contains};
use super::meta::{self, MetaRow};
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::names::{Server, TableName};
use crate::proto::common::{RegionSpecifier, TableState};
use crate::proto::scan::{Scan, ScanRequest, ScanResponse};
use crate::rows::{self, Row};

/// Lookups in progress, by table and the start of the gap between its cached regions.
pub type Lookups = DashMap<(TableName, Bytes), RegionLookup>;
type RegionLookup = Arc<OnceCell<Result<Arc<Region>, Error>>>;

/// The priority of reads of `hbase:meta` at the server, so that they precede the calls that wait for them.
const META_PRIORITY: Option<u32> = Some(200);
/// Regions to read after the requested one, if the next one is not cached.
const READ_AHEAD_REGIONS: u32 = 200;
/// Rows to read backwards to find one region: split parents that are still listed may precede it.
const BACKWARD_ROWS: u32 = 4;

/// Rows of `hbase:meta`, and the server that they came from.
struct MetaScanResult {
    server: Server,
    rows: Vec<Row>,
}

impl MetaScanResult {
    fn parse(&self, row: &Row) -> Result<Option<MetaRow>, Error> {
        let server = &self.server;
        MetaRow::parse(row).map_err(|source| Error::Protocol { server: server.clone(), source })
    }
}

impl Cluster {
    /// Returns the cached region of a row.
    pub fn cached(&self, table: &TableName, row: &[u8]) -> Option<Arc<Region>> {
        self.tables.get(table)?.find(row).cloned()
    }

    /// Returns the region of a row, from the cache if it is there.
    ///
    /// # Errors
    /// Returns the error of a single attempt; the caller retries.
    pub async fn locate(
        &self,
        table: &TableName,
        row: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Region>, Error> {
        loop {
            if let Some(region) = self.cached(table, row) {
                return Ok(region);
            }
            let gap = self.tables.get(table).map_or_else(Bytes::new, |known| known.gap(row));
            let key = (table.clone(), gap);
            let lookup = self.lookups.entry(key.clone()).or_default().clone();
            let found = lookup.get_or_init(|| self.look_up(table, row, deadline)).await.clone();
            self.lookups.remove_if(&key, |_, known| Arc::ptr_eq(known, &lookup));
            let region = found?;
            // A shared lookup may have been for another row of the same gap.
            if region.contains(row) {
                return Ok(region);
            }
        }
    }

    async fn look_up(
        &self,
        table: &TableName,
        row: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Region>, Error> {
        if table.is_meta() {
            let region = self.registry.meta_region(deadline).await?;
            self.remember(table, region.clone());
            return Ok(region);
        }
        let back =
            self.scan_meta(meta::scan_back_from(table, row), BACKWARD_ROWS, deadline).await?;
        let mut found = None;
        for row_of_meta in &back.rows {
            let parsed = back.parse(row_of_meta)?;
            let contains_row = |meta: &MetaRow| range_contains(&meta.start(), &meta.end(), row);
            found = found.or(parsed.filter(contains_row));
        }
        let Some(region) = found.as_ref().and_then(MetaRow::region) else {
            let region = found.map_or_else(Range::default, |region| region.start()..region.end());
            return Err(self
                .unavailable_error(table, region, back.rows.is_empty(), deadline)
                .await);
        };
        let region = Arc::new(region);
        let is_end_known = region.end.is_empty() || self.cached(table, &region.end).is_some();
        self.remember(table, region.clone());
        if !is_end_known && let Err(error) = self.read_ahead(table, &region.end, deadline).await {
            // This row is not affected, and a lookup of the next region will return the error.
            tracing::debug!(%table, %error, "cannot read ahead in hbase:meta");
        }
        // Prefer the cached region: another caller may have found a newer one.
        Ok(self.cached(table, row).unwrap_or(region))
    }

    /// Caches the next regions, because callers mostly use regions in order.
    async fn read_ahead(
        &self,
        table: &TableName,
        from: &[u8],
        deadline: Instant,
    ) -> Result<(), Error> {
        let found =
            self.scan_meta(meta::scan_from(table, from), READ_AHEAD_REGIONS, deadline).await?;
        for row in &found.rows {
            if let Some(region) = found.parse(row)?.as_ref().and_then(MetaRow::region) {
                self.remember(table, Arc::new(region));
            }
        }
        Ok(())
    }

    /// Returns all regions of a table in the order of `hbase:meta`, whose comparator sorts by table, then by start row.
    ///
    /// # Errors
    /// Returns the error of a single attempt; the caller retries.
    pub async fn list_regions(
        &self,
        table: &TableName,
        deadline: Instant,
    ) -> Result<Vec<MetaRow>, Error> {
        if table.is_meta() {
            // Its only region has no row in `hbase:meta`.
            return Ok(vec![MetaRow::for_meta(&*self.registry.meta_region(deadline).await?)]);
        }
        let mut regions = Vec::new();
        let mut scan = meta::scan_from(table, b"");
        loop {
            let found = self.scan_meta(scan, READ_AHEAD_REGIONS, deadline).await?;
            for row in &found.rows {
                regions.extend(found.parse(row)?);
            }
            let Some(last) = found.rows.last() else { return Ok(regions) };
            scan = meta::scan_after(table, Bytes::copy_from_slice(last.key()));
        }
    }

    fn remember(&self, table: &TableName, region: Arc<Region>) {
        self.tables.entry(table.clone()).or_default().insert(region);
    }

    /// Returns why a row has no region: the table does not exist, is disabled, or the region is in transition.
    async fn unavailable_error(
        &self,
        table: &TableName,
        region: Range<Bytes>,
        has_no_regions: bool,
        deadline: Instant,
    ) -> Error {
        match self.table_state(table, deadline).await {
            Ok(None) if has_no_regions => Error::NoTable { table: table.clone() },
            Ok(Some(TableState::DISABLED | TableState::DISABLING)) => {
                Error::Disabled { table: table.clone() }
            }
            Ok(_) => Error::NoServer { table: table.clone(), region },
            Err(error) => error,
        }
    }

    /// Returns the state of a table, or `None` if it does not exist.
    pub async fn table_state(
        &self,
        table: &TableName,
        deadline: Instant,
    ) -> Result<Option<TableState>, Error> {
        let found = self.scan_meta(meta::scan_state(table), 1, deadline).await?;
        Ok(found.rows.first().and_then(meta::parse_state))
    }

    /// Returns the first rows of a scan of `hbase:meta`, in one call.
    async fn scan_meta(
        &self,
        scan: Scan,
        rows: u32,
        deadline: Instant,
    ) -> Result<MetaScanResult, Error> {
        let table = TableName::meta();
        // Boxed, because `locate` calls this function.
        let region = Box::pin(self.locate(&table, b"", deadline)).await?;
        let request = ScanRequest {
            region: Some(RegionSpecifier::name(&region.name)),
            scan: Some(scan),
            number_of_rows: Some(rows),
            close_scanner: Some(true),
            limit_of_rows: Some(rows),
            ..ScanRequest::default()
        };
        let deadline = self.config.call_deadline(deadline);
        let call = Call { priority: META_PRIORITY, ..Call::new("Scan", &request, deadline) };
        let server = region.server.clone();
        let response = self.connections.call::<_, ScanResponse>(&server, Service::Rows, call).await;
        let found =
            response.and_then(|(response, cells)| match rows::from_scan(&response, cells) {
                Ok(results) => {
                    let rows = results.into_iter().filter_map(|result| Row::new(result.cells));
                    Ok(MetaScanResult { server, rows: rows.collect() })
                }
                Err(source) => Err(Error::Protocol { server, source }),
            });
        found.inspect_err(|error| self.handle_error(&table, &region, error))
    }
}
