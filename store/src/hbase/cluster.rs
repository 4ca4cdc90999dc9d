//! The cells of a real HBase, over its client. Whoever calls waits; the client runs on threads of its own.

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

use super::ledger::cells::{Cells, Columns, Gone, Page, Put, PutWhere, Table, VALUE};
use super::schema::tables;
use crate::StoreError;
use crate::Timing;
use crate::layout::key::Key;

/// The one family of every table.
pub const FAMILY: &[u8] = b"d";

/// Deadline of one operation with all retries of the client. It is not part of [`Timing`]: HBase takes seconds to
/// move a region or to replace a server, and a shorter deadline would fail where waiting helps.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Of buffers that actions have their bytes in.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection to a cluster and the tables of one store; cheap to clone, for any thread. What HBase does not
/// do in its time fails, but for [`Cluster::for_one_thread`].
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    settings: Arc<config::HBase>,
    timing: Timing,
    runtime: Arc<Runtime>,
    patience: Arc<Patience>,
    is_patient: bool,
}

/// How a table answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Stands,
    Missing,
    Disabled,
    /// It has not the family of ours.
    Foreign,
    /// It does not, for now.
    Silent,
}

/// Whether a worker tries again and again what HBase does not do, and whether that is so now.
#[derive(Debug, Default)]
struct Patience {
    is_over: AtomicBool,
    /// What answers of one kind say is not so of the other: rows may be read that nobody can write.
    is_needed: AtomicBool,
    is_needed_for_checks: AtomicBool,
}

impl Cluster {
    /// To the servers and tables of the settings.
    ///
    /// # Errors
    /// Where none of the servers answers as HBase does, or a file of TLS can not be read.
    pub fn connect(settings: &config::HBase, timing: Timing) -> Result<Self, StoreError> {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(2).thread_name("hbase");
        Self::connect_on(threads, Arc::new(settings.clone()), timing)
    }

    /// The same for a worker, which tries until it succeeds, or [`Cluster::give_up`], and on its thread, which
    /// does nothing else meanwhile: the client runs on it while it waits. That saves waking others, a sixth of
    /// what a worker takes.
    pub fn for_one_thread(&self) -> Result<Self, StoreError> {
        let (threads, settings) = (Builder::new_current_thread(), Arc::clone(&self.settings));
        let own = Self::connect_on(threads, settings, self.timing)?;
        Ok(Self { patience: Arc::clone(&self.patience), is_patient: true, ..own })
    }

    fn connect_on(
        mut threads: Builder,
        settings: Arc<config::HBase>,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let runtime = threads.enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Runtime { reason: error.to_string() })?;
        let client = runtime.block_on(Client::connect(client_config(&settings)?))?;
        let (runtime, patience) = (Arc::new(runtime), Arc::default());
        Ok(Self { client, settings, timing, runtime, patience, is_patient: false })
    }

    /// From now on what HBase does not do in its time fails for the worker too.
    pub fn give_up(&self) {
        self.patience.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether the worker is trying something again now.
    pub fn is_waiting(&self) -> bool {
        let Patience { is_needed, is_needed_for_checks, .. } = &*self.patience;
        [is_needed, is_needed_for_checks].into_iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// Waits for what the client does.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// As [`Cluster::wait`], for what can be done without.
    pub fn wait_briefly<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit = self.timing.hbase_optional_answer_timeout;
        let done = self.wait(async { tokio::time::timeout(limit, work).await });
        done.unwrap_or(Err(Error::Deadline { what, limit, last: None }))
    }

    /// How a table answers to a read of nothing: no master is asked.
    pub fn look_at(&self, table: &str) -> Result<State, StoreError> {
        const NOTHING: [u8; 1] = [0];
        let get = Get::new(NOTHING.to_vec()).select(Selection::all().column(FAMILY, VALUE));
        let table = self.client.table(table)?;
        match self.wait_briefly("a look at a table", table.get(get)) {
            Ok(_) => Ok(State::Stands),
            Err(Error::NoTable { .. }) => Ok(State::Missing),
            Err(Error::Disabled { .. }) => Ok(State::Disabled),
            Err(Error::Refused { fault, .. }) if fault.name() == "NoSuchColumnFamilyException" => {
                Ok(State::Foreign)
            }
            Err(error) if error.advice() == RetryAdvice::Change => Err(error.into()),
            Err(_) => Ok(State::Silent),
        }
    }

    pub fn has_rows(&self, table: &str) -> Result<bool, StoreError> {
        let table = self.client.table(table)?;
        // A scan begins on the client's threads.
        let mut rows = self.wait(async { table.scan(Scan::all().limit(1)) });
        Ok(self.wait(rows.next()).transpose()?.is_some())
    }

    fn table(&self, table: Table) -> Result<hbase_client::Table, StoreError> {
        Ok(self.client.table(&tables::name(self.prefix(), table))?)
    }

    /// Does what does no harm twice, for a worker until all of it is done. Gives the outcomes in their order.
    fn each<I, A, T, W>(
        &self,
        items: &[I],
        action: impl Fn(&I, &mut Buffer) -> A,
        mut attempt: impl FnMut(Vec<A>) -> W,
    ) -> Result<Vec<T>, StoreError>
    where
        W: Future<Output = Vec<Result<T, Error>>>,
    {
        let mut done: Vec<Option<T>> = items.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..items.len()).collect();
        while !open.is_empty() {
            let mut buffer = Buffer::default();
            let some = open.iter().filter_map(|place| items.get(*place));
            let actions = some.map(|item| action(item, &mut buffer)).collect();
            let mut failure = None;
            let mut left = Vec::new();
            for (place, outcome) in open.iter().zip(self.wait(attempt(actions))) {
                match outcome {
                    Ok(value) => done[*place] = Some(value),
                    Err(error) => {
                        left.push(*place);
                        failure = Some(error);
                    }
                }
            }
            self.pause_after(failure, left.len(), &self.patience.is_needed)?;
            open = left;
        }
        Ok(done.into_iter().flatten().collect())
    }

    fn rows(&self, table: Table, rows: &[Key]) -> Result<Vec<Option<Row>>, StoreError> {
        let table = self.table(table)?;
        let get = |row: &Key, buffer: &mut Buffer| Get::new(buffer.put(row));
        self.each(rows, get, |gets| table.get_many(gets))
    }

    /// What may succeed later a worker waits for.
    fn pause_after(
        &self,
        failure: Option<Error>,
        rows: usize,
        is_needed: &AtomicBool,
    ) -> Result<(), StoreError> {
        if !self.is_patient {
            return failure.map_or(Ok(()), |error| Err(error.into()));
        }
        is_needed.store(failure.is_some(), Ordering::Relaxed);
        let Some(error) = failure else { return Ok(()) };
        if !may_pass(&error) || self.patience.is_over.load(Ordering::Relaxed) {
            return Err(error.into());
        }
        tracing::warn!(%error, rows, "hbase does not do it now, trying again");
        thread::sleep(self.timing.hbase_retry_delay);
        Ok(())
    }
}

/// A table is disabled to be changed, and enabled afterwards.
fn may_pass(error: &Error) -> bool {
    error.advice() != RetryAdvice::Change || matches!(error, Error::Disabled { .. })
}

/// In doubt, as no try was answered until the deadline: the next may not be either. One call has less time, and
/// another that came after it may have been answered.
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

/// What the bytes of many actions are copied into, one behind the other: each by itself would be an
/// allocation.
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

fn living(put: hbase_client::Put, ttl_ms: Option<u64>) -> hbase_client::Put {
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
        // What else is in the row is hardly ever there: facts that another took the place of.
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
        let found = self.each(pages, get, |gets| table.get_many(gets))?;
        Ok(found.into_iter().map(columns).collect())
    }

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError> {
        let table = self.table(table)?;
        let mutation = |put: &Put, buffer: &mut Buffer| -> Mutation {
            let Put { row, column, value, time, ttl_ms } = put;
            let put = living(hbase_client::Put::new(buffer.put(row)), *ttl_ms);
            let (column, value) = (buffer.put(column), buffer.put(value));
            match *time {
                Some(time) => put.cell_at(time, FAMILY, column, value).into(),
                None => put.cell(FAMILY, column, value).into(),
            }
        };
        self.each(&puts, mutation, |puts| table.mutate_many(puts)).map(drop)
    }

    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError> {
        let table = self.table(table)?;
        let check = |PutWhere { row, expected, value, ttl_ms }: PutWhere| {
            let put = hbase_client::Put::new(row.to_vec()).cell(FAMILY, VALUE, value);
            let put = living(put, ttl_ms);
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
                // Done or not: whoever asks reads once more.
                Err(error) => {
                    if error.advice() != RetryAdvice::ReadAgain || has_run_out_of_time(&error) {
                        failure = Some(error);
                    }
                    false
                }
            });
        }
        let refused = taken.iter().filter(|is_taken| !**is_taken).count();
        self.pause_after(failure, refused, &self.patience.is_needed_for_checks)?;
        Ok(taken)
    }

    fn delete(&mut self, table: Table, cells: Vec<Gone>) -> Result<(), StoreError> {
        let table = self.table(table)?;
        let delete = |Gone { row, column, until }: &Gone, buffer: &mut Buffer| -> Mutation {
            let delete = Delete::new(buffer.put(row));
            delete.column_until(*until, FAMILY, buffer.put(column)).into()
        };
        self.each(&cells, delete, |deletes| table.mutate_many(deletes)).map(drop)
    }

    /// What was in doubt was done, perhaps by another worker.
    fn settled(&mut self) {
        self.patience.is_needed_for_checks.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_that_the_deadline_left_is_waited_for() {
        let timeout = OPERATION_TIMEOUT;
        let uncertain = |last| Error::Uncertain { last: Arc::new(last) };
        let late = Error::Deadline { what: "a batch of rows", limit: timeout, last: None };
        let of_a_call = Error::Deadline { what: "Multi", limit: timeout / 3, last: None };
        assert!(has_run_out_of_time(&uncertain(late.clone())));
        // Another try told so much: it is read again at once.
        assert!(!has_run_out_of_time(&uncertain(Error::NoMaster)));
        assert!(!has_run_out_of_time(&uncertain(of_a_call)));
        assert!(!has_run_out_of_time(&late));
    }
}
