//! Finding regions: from what is known, else from `hbase:meta`, once for all who look for the same.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Cluster;
use super::meta::{self, MetaRow};
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::location::Region;
use crate::names::{Server, TableName};
use crate::proto::common::{RegionSpecifier, TableState};
use crate::proto::scan::{Scan, ScanRequest, ScanResponse};
use crate::rows::{self, Row};

/// Look-ups under way, by table and the stretch that is not known; each done once for all.
pub type Flights = DashMap<(TableName, Bytes), Flight>;
type Flight = Arc<OnceCell<Result<Arc<Region>, Error>>>;

/// Of the servers' calls: what reads `hbase:meta` goes before what waits for it.
const META_PRIORITY: Option<u32> = Some(200);
/// Read along with the region that is looked for, where nothing beyond it is known.
const AHEAD: u32 = 200;
/// Read backwards for one region: the parents of a split may stand before it.
const BACK: u32 = 4;

/// What was read of `hbase:meta`.
struct Found {
    server: Server,
    rows: Vec<Row>,
}

impl Found {
    fn parse(&self, row: &Row) -> Result<Option<MetaRow>, Error> {
        let server = &self.server;
        MetaRow::parse(row).map_err(|source| Error::Protocol { server: server.clone(), source })
    }
}

impl Cluster {
    pub fn known(&self, table: &TableName, row: &[u8]) -> Option<Arc<Region>> {
        self.tables.get(table)?.find(row).cloned()
    }

    /// Where a row is, now or as it was known last.
    ///
    /// # Errors
    /// One try's: the caller decides about others.
    pub async fn locate(
        &self,
        table: &TableName,
        row: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Region>, Error> {
        loop {
            if let Some(region) = self.known(table, row) {
                return Ok(region);
            }
            let gap = self.tables.get(table).map_or_else(Bytes::new, |known| known.gap(row));
            let key = (table.clone(), gap);
            let flight = self.flights.entry(key.clone()).or_default().clone();
            let found = flight.get_or_init(|| self.look_up(table, row, deadline)).await.clone();
            self.flights.remove_if(&key, |_, known| Arc::ptr_eq(known, &flight));
            let region = found?;
            // Another one may have looked for another row of the same stretch.
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
            let region = self.meta_region(deadline).await?;
            self.remember(table, region.clone());
            return Ok(region);
        }
        let back = self.scan_meta(meta::scan_back_from(table, row), BACK, deadline).await?;
        let mut found = None;
        for row_of_meta in &back.rows {
            let parsed = back.parse(row_of_meta)?;
            let holds = |meta: &MetaRow| {
                meta.start() <= row && (meta.end().is_empty() || row < &meta.end()[..])
            };
            found = found.or(parsed.filter(holds));
        }
        let Some(region) = found.as_ref().and_then(MetaRow::region) else {
            let region = found.map_or_else(Range::default, |region| region.start()..region.end());
            return Err(self.missing(table, region, back.rows.is_empty(), deadline).await);
        };
        let region = Arc::new(region);
        let is_end_known = region.end.is_empty() || self.known(table, &region.end).is_some();
        self.remember(table, region.clone());
        if !is_end_known && let Err(error) = self.read_ahead(table, &region.end, deadline).await {
            // Whoever asks for the next region will hear of it.
            tracing::debug!(%table, %error, "hbase:meta could not be read ahead");
        }
        // As it is known now: others may have found a later one.
        Ok(self.known(table, row).unwrap_or(region))
    }

    /// Regions are asked for in order more often than not.
    async fn read_ahead(
        &self,
        table: &TableName,
        from: &[u8],
        deadline: Instant,
    ) -> Result<(), Error> {
        let on = self.scan_meta(meta::scan_on_from(table, from), AHEAD, deadline).await?;
        for row in &on.rows {
            if let Some(region) = on.parse(row)?.as_ref().and_then(MetaRow::region) {
                self.remember(table, Arc::new(region));
            }
        }
        Ok(())
    }

    /// All regions of a table, as they stand in `hbase:meta`, which has an order of its own: by the table, then by
    /// where a region begins.
    ///
    /// # Errors
    /// One try's: the caller decides about others.
    pub async fn list(&self, table: &TableName, deadline: Instant) -> Result<Vec<MetaRow>, Error> {
        if table.is_meta() {
            // It has one region, which stands nowhere.
            return Ok(vec![MetaRow::of_meta(&*self.meta_region(deadline).await?)]);
        }
        let mut regions = Vec::new();
        let mut scan = meta::scan_on_from(table, b"");
        loop {
            let found = self.scan_meta(scan, AHEAD, deadline).await?;
            for row in &found.rows {
                regions.extend(found.parse(row)?);
            }
            let Some(last) = found.rows.last() else { return Ok(regions) };
            scan = meta::scan_on_after(table, Bytes::copy_from_slice(last.key()));
        }
    }

    fn remember(&self, table: &TableName, region: Arc<Region>) {
        self.tables.entry(table.clone()).or_default().insert(region);
    }

    /// Why a row has no region: there is no such table, it is disabled, or the region is on its way.
    async fn missing(
        &self,
        table: &TableName,
        region: Range<Bytes>,
        has_no_regions: bool,
        deadline: Instant,
    ) -> Error {
        match self.state(table, deadline).await {
            Ok(None) if has_no_regions => Error::NoTable { table: table.clone() },
            Ok(Some(TableState::DISABLED | TableState::DISABLING)) => {
                Error::Disabled { table: table.clone() }
            }
            Ok(_) => Error::NoServer { table: table.clone(), region },
            Err(error) => error,
        }
    }

    /// Nothing where there is no such table.
    pub async fn state(
        &self,
        table: &TableName,
        deadline: Instant,
    ) -> Result<Option<TableState>, Error> {
        let found = self.scan_meta(meta::scan_of_state(table), 1, deadline).await?;
        Ok(found.rows.first().and_then(meta::state))
    }

    /// The first rows of a scan of `hbase:meta`, in one call.
    async fn scan_meta(&self, scan: Scan, rows: u32, deadline: Instant) -> Result<Found, Error> {
        let table = TableName::meta();
        // Boxed, as this is how `locate` comes to itself.
        let region = Box::pin(self.locate(&table, b"", deadline)).await?;
        let request = ScanRequest {
            region: Some(RegionSpecifier::name(&region.name)),
            scan: Some(scan),
            number_of_rows: Some(rows),
            close_scanner: Some(true),
            limit_of_rows: Some(rows),
            ..ScanRequest::default()
        };
        let deadline = self.call_deadline(deadline);
        let call = Call { priority: META_PRIORITY, ..Call::new("Scan", &request, deadline) };
        let answer = self.call::<_, ScanResponse>(&region.server, Service::Rows, call).await;
        let read = answer.and_then(|(answer, cells)| {
            let server = region.server.clone();
            let results = rows::of_scan(&answer, cells);
            results.map_err(|source| Error::Protocol { server, source })
        });
        match read {
            Ok(results) => Ok(Found {
                server: region.server.clone(),
                rows: results.into_iter().filter_map(|(cells, _)| Row::new(cells)).collect(),
            }),
            Err(error) => {
                self.learn(&table, &region, &error);
                Err(error)
            }
        }
    }
}
