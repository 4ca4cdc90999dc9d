//! The cells of a real HBase, through its client. Calls block; the client runs on threads of its own.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use bytes::{Bytes, BytesMut};
use hbase_client::{
    CheckAndMutate, Client, Config, Delete, Error, Get, Identity, Mutation, RetryAdvice, Row, Scan,
    Selection, Tls,
};
use tokio::runtime::{Builder, Runtime};

use super::ledger::cells::{CellDelete, Cells, Columns, Entry, Page, Put, PutWhere, Table, VALUE};
use super::schema::tables;
use crate::StoreError;
use crate::Timing;
use crate::layout::key::Key;

/// The only column family of every table.
pub const FAMILY: &[u8] = b"d";

/// Deadline of one operation with all retries of the client. It is not part of [`Timing`]: HBase takes seconds to
/// move a region or to replace a server, and a shorter deadline would fail where waiting helps.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of the buffers that the bytes of actions are copied into.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection to a cluster and the tables of one store; cheap to clone, for any thread. Operations fail after
/// `OPERATION_TIMEOUT`, except on a connection of [`Cluster::for_one_thread`], which retries them.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    settings: Arc<config::HBase>,
    timing: Timing,
    runtime: Arc<Runtime>,
    retries: Arc<RetryState>,
    retries_forever: bool,
}

/// The state of a table, found by a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Available,
    Missing,
    Disabled,
    /// The table lacks the column family [`FAMILY`].
    Foreign,
    /// The read failed, but may succeed later.
    Unresponsive,
}

/// The retries of a worker, shared between its connection and the one that it was made from.
#[derive(Debug, Default)]
struct RetryState {
    has_given_up: AtomicBool,
    /// Set while plain operations are retried. Checks have a flag of their own, because one kind can fail while the
    /// other succeeds: rows may be readable but not writable.
    is_retrying: AtomicBool,
    is_retrying_checks: AtomicBool,
}

impl Cluster {
    /// Connects to the configured servers.
    ///
    /// # Errors
    /// If none of the servers answers as HBase does, or a TLS file cannot be read.
    pub fn connect(settings: &config::HBase, timing: Timing) -> Result<Self, StoreError> {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(2).thread_name("hbase");
        Self::connect_on(threads, Arc::new(settings.clone()), timing)
    }

    /// Connects once more, for a worker, which retries failed operations until [`Cluster::give_up`]. The client runs on
    /// the worker's thread while that waits. This saves waking other threads, a sixth of a worker's CPU time.
    pub fn for_one_thread(&self) -> Result<Self, StoreError> {
        let (threads, settings) = (Builder::new_current_thread(), Arc::clone(&self.settings));
        let cluster = Self::connect_on(threads, settings, self.timing)?;
        Ok(Self { retries: Arc::clone(&self.retries), retries_forever: true, ..cluster })
    }

    fn connect_on(
        mut threads: Builder,
        settings: Arc<config::HBase>,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let runtime = threads.enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Runtime { reason: error.to_string() })?;
        let client = runtime.block_on(Client::connect(client_config(&settings)?))?;
        let (runtime, retries) = (Arc::new(runtime), Arc::default());
        Ok(Self { client, settings, timing, runtime, retries, retries_forever: false })
    }

    /// From now on operations of the worker fail too after `OPERATION_TIMEOUT`.
    pub fn give_up(&self) {
        self.retries.has_given_up.store(true, Ordering::Relaxed);
    }

    /// True while the worker retries an operation.
    pub fn is_waiting(&self) -> bool {
        let RetryState { is_retrying, is_retrying_checks, .. } = &*self.retries;
        [is_retrying, is_retrying_checks].into_iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// Blocks until a future of the client is ready.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Like [`Cluster::wait`], with a short timeout, for results that are optional.
    pub fn wait_briefly<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit = self.timing.hbase_optional_answer_timeout;
        let done = self.wait(async { tokio::time::timeout(limit, work).await });
        done.unwrap_or(Err(Error::Deadline { operation, limit, last: None }))
    }

    /// Returns the state of a table, by a read of a row that does not exist; this needs no master.
    pub fn probe(&self, table: &str) -> Result<State, StoreError> {
        const NOTHING: [u8; 1] = [0];
        let get = Get::new(NOTHING.to_vec()).select(Selection::all().column(FAMILY, VALUE));
        let table = self.client.table(table)?;
        match self.wait_briefly("a check of a table", table.get(get)) {
            Ok(_) => Ok(State::Available),
            Err(Error::NoTable { .. }) => Ok(State::Missing),
            Err(Error::Disabled { .. }) => Ok(State::Disabled),
            Err(Error::Refused { exception, .. })
                if exception.name() == "NoSuchColumnFamilyException" =>
            {
                Ok(State::Foreign)
            }
            Err(error) if error.advice() == RetryAdvice::Change => Err(error.into()),
            Err(_) => Ok(State::Unresponsive),
        }
    }

    pub fn has_rows(&self, table: &str) -> Result<bool, StoreError> {
        let table = self.client.table(table)?;
        // Scans must be started in the runtime.
        let mut rows = self.wait(async { table.scan(Scan::all().limit(1)) });
        Ok(self.wait(rows.next()).transpose()?.is_some())
    }

    fn table(&self, table: Table) -> Result<hbase_client::Table, StoreError> {
        Ok(self.client.table(&tables::name(self.prefix(), table))?)
    }

    /// Performs idempotent operations; for a worker, retries failed ones until all have succeeded. Returns the results
    /// in the order of `items`.
    fn retry_each<I, A, T, W>(
        &self,
        items: &[I],
        action: impl Fn(&I, &mut Buffer) -> A,
        mut attempt: impl FnMut(Vec<A>) -> W,
    ) -> Result<Vec<T>, StoreError>
    where
        W: Future<Output = Vec<Result<T, Error>>>,
    {
        let mut done: Vec<Option<T>> = items.iter().map(|_| None).collect();
        let mut pending: Vec<usize> = (0..items.len()).collect();
        while !pending.is_empty() {
            let mut buffer = Buffer::default();
            let some = pending.iter().filter_map(|index| items.get(*index));
            let actions = some.map(|item| action(item, &mut buffer)).collect();
            let mut failure = None;
            let mut failed = Vec::new();
            for (index, outcome) in pending.iter().zip(self.wait(attempt(actions))) {
                match outcome {
                    Ok(value) => done[*index] = Some(value),
                    Err(error) => {
                        failed.push(*index);
                        failure = Some(error);
                    }
                }
            }
            self.pause_after(failure, failed.len(), &self.retries.is_retrying)?;
            pending = failed;
        }
        Ok(done.into_iter().flatten().collect())
    }

    fn rows(&self, table: Table, rows: &[Key]) -> Result<Vec<Option<Row>>, StoreError> {
        let table = self.table(table)?;
        let get = |row: &Key, buffer: &mut Buffer| Get::new(buffer.put(row));
        self.retry_each(rows, get, |gets| table.get_many(gets))
    }

    /// For a worker, waits before the next attempt after a failure that may be temporary; other failures are returned.
    fn pause_after(
        &self,
        failure: Option<Error>,
        rows: usize,
        is_retrying: &AtomicBool,
    ) -> Result<(), StoreError> {
        if !self.retries_forever {
            return failure.map_or(Ok(()), |error| Err(error.into()));
        }
        is_retrying.store(failure.is_some(), Ordering::Relaxed);
        let Some(error) = failure else { return Ok(()) };
        if !is_temporary(&error) || self.retries.has_given_up.load(Ordering::Relaxed) {
            return Err(error.into());
        }
        tracing::warn!(%error, rows, "HBase request failed, retrying");
        thread::sleep(self.timing.hbase_retry_delay);
        Ok(())
    }
}

/// A disabled table counts as temporary: administrators disable a table to alter it, and enable it afterwards.
fn is_temporary(error: &Error) -> bool {
    error.advice() != RetryAdvice::Change || matches!(error, Error::Disabled { .. })
}

/// True if the outcome is uncertain because no attempt was answered within `OPERATION_TIMEOUT`: the next one may not
/// be answered either. A single call has a shorter limit, and a later call may have been answered.
fn has_run_out_of_time(error: &Error) -> bool {
    let is_late =
        |last: &Error| matches!(last, Error::Deadline { limit, .. } if *limit >= OPERATION_TIMEOUT);
    matches!(error, Error::Uncertain { last } if is_late(last))
}

fn client_config(settings: &config::HBase) -> Result<Config, StoreError> {
    let mut config = Config::new(&settings.servers)?;
    config.operation_timeout = OPERATION_TIMEOUT;
    config.user = settings.user.to_string();
    config.tls = settings.tls.as_ref().map(tls).transpose()?;
    Ok(config)
}

fn tls(settings: &config::Tls) -> Result<Tls, StoreError> {
    let read = |path: &PathBuf| fs::read(path).map_err(StoreError::file("read", path));
    let authorities_pem = settings.ca.as_ref().map(read).transpose()?.unwrap_or_default();
    let identity = match &settings.identity {
        Some(config::Identity { certificate, key }) => {
            Some(Identity { certificates_pem: read(certificate)?, key_pem: read(key)? })
        }
        None => None,
    };
    Ok(Tls { authorities_pem, identity })
}

/// Holds the bytes of many actions, to save an allocation for each.
#[derive(Default)]
struct Buffer(BytesMut);

impl Buffer {
    fn put(&mut self, bytes: &[u8]) -> Bytes {
        if self.0.capacity() < bytes.len() {
            self.0 = BytesMut::with_capacity(bytes.len().max(BUFFER_BYTES));
        }
        self.0.extend_from_slice(bytes);
        self.0.split().freeze()
    }
}

fn with_ttl(put: hbase_client::Put, ttl_ms: Option<u64>) -> hbase_client::Put {
    match ttl_ms {
        Some(ms) => put.ttl(ms),
        None => put,
    }
}

fn columns(row: Option<Row>) -> Columns {
    let cells = row.iter().flat_map(Row::cells);
    cells.map(|cell| (cell.qualifier().to_vec(), cell.value().to_vec())).collect()
}

impl Cells for Cluster {
    fn get(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        // Whole rows are fetched: other columns, which hold replaced facts, are rare.
        let found = self.rows(table, rows)?;
        let value = |row: Option<Row>| row?.value(FAMILY, VALUE).map(<[u8]>::to_vec);
        Ok(found.into_iter().map(value).collect())
    }

    fn get_rows(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Columns>, StoreError> {
        Ok(self.rows(table, rows)?.into_iter().map(columns).collect())
    }

    fn get_pages(&mut self, table: Table, pages: &[Page]) -> Result<Vec<Columns>, StoreError> {
        let table = self.table(table)?;
        let get = |Page { row, columns, limit }: &Page, buffer: &mut Buffer| {
            let limit = u32::try_from(*limit).unwrap_or(u32::MAX);
            let columns = buffer.put(&columns.start)..buffer.put(&columns.end);
            let selection = Selection::all().columns_between(columns).columns_max(limit);
            Get::new(buffer.put(row)).select(selection)
        };
        let found = self.retry_each(pages, get, |gets| table.get_many(gets))?;
        Ok(found.into_iter().map(columns).collect())
    }

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError> {
        let table = self.table(table)?;
        let mutation = |put: &Put, buffer: &mut Buffer| -> Mutation {
            let Put { row, column, value, time, ttl_ms } = put;
            let put = with_ttl(hbase_client::Put::new(buffer.put(row)), *ttl_ms);
            let (column, value) = (buffer.put(column), buffer.put(value));
            match *time {
                Some(time) => put.cell_at(time, FAMILY, column, value).into(),
                None => put.cell(FAMILY, column, value).into(),
            }
        };
        self.retry_each(&puts, mutation, |puts| table.mutate_many(puts)).map(drop)
    }

    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError> {
        let table = self.table(table)?;
        let check = |PutWhere { row, expected, value, ttl_ms }: PutWhere| {
            let put = hbase_client::Put::new(row.to_vec()).cell(FAMILY, VALUE, value);
            let put = with_ttl(put, ttl_ms);
            match expected {
                Some(expected) => CheckAndMutate::where_equal(FAMILY, VALUE, expected, put),
                None => CheckAndMutate::where_absent(FAMILY, VALUE, put),
            }
        };
        let checks: Vec<CheckAndMutate> = puts.into_iter().map(check).collect();
        let mut failure = None;
        let mut taken = Vec::with_capacity(checks.len());
        for outcome in self.wait(table.check_and_mutate_many(checks)) {
            taken.push(match outcome {
                Ok(is_taken) => is_taken,
                // It may have been applied or not: the caller reads the row again.
                Err(error) => {
                    if error.advice() != RetryAdvice::ReadAgain || has_run_out_of_time(&error) {
                        failure = Some(error);
                    }
                    false
                }
            });
        }
        let refused = taken.iter().filter(|is_taken| !**is_taken).count();
        self.pause_after(failure, refused, &self.retries.is_retrying_checks)?;
        Ok(taken)
    }

    fn scan(
        &mut self,
        table: Table,
        range: Range<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let table = self.table(table)?;
        let entry = |row: &Row| {
            let value = row.value(FAMILY, VALUE).unwrap_or_default();
            (row.key().to_vec(), value.to_vec())
        };
        loop {
            let scan = Scan::range(range.start.clone(), range.end.clone()).limit(limit as u64);
            let read = self.wait(async {
                let (mut rows, mut entries) = (table.scan(scan), Vec::new());
                while let Some(batch) = rows.next_batch().await {
                    entries.extend(batch?.iter().map(entry));
                }
                Ok::<_, Error>(entries)
            });
            let (entries, failure) = match read {
                Ok(entries) => (Some(entries), None),
                Err(error) => (None, Some(error)),
            };
            self.pause_after(failure, 1, &self.retries.is_retrying)?;
            if let Some(entries) = entries {
                return Ok(entries);
            }
        }
    }

    fn delete(&mut self, table: Table, cells: Vec<CellDelete>) -> Result<(), StoreError> {
        let table = self.table(table)?;
        let delete =
            |CellDelete { row, column, until }: &CellDelete, buffer: &mut Buffer| -> Mutation {
                let delete = Delete::new(buffer.put(row));
                delete.column_until(*until, FAMILY, buffer.put(column)).into()
            };
        self.retry_each(&cells, delete, |deletes| table.mutate_many(deletes)).map(drop)
    }

    /// Uncertain checks have been resolved, perhaps by another worker.
    fn batch_complete(&mut self) {
        self.retries.is_retrying_checks.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_is_uncertain_after_the_timeout_is_retried_later() {
        let timeout = OPERATION_TIMEOUT;
        let uncertain = |last| Error::Uncertain { last: Arc::new(last) };
        let late = Error::Deadline { operation: "a batch of rows", limit: timeout, last: None };
        let of_a_call = Error::Deadline { operation: "Multi", limit: timeout / 3, last: None };
        assert!(has_run_out_of_time(&uncertain(late.clone())));
        // Another attempt was answered: the row is read again at once.
        assert!(!has_run_out_of_time(&uncertain(Error::NoMaster)));
        assert!(!has_run_out_of_time(&uncertain(of_a_call)));
        assert!(!has_run_out_of_time(&late));
    }
}
