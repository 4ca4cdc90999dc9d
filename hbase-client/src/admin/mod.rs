//! Administration of tables and regions. Start with [`Admin`]; `schema` describes tables, `regions` their parts.

use std::sync::Arc;

use backon::BackoffBuilder;
use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::connection::{Call, Service};
use crate::error::backoff::{self, POLLING};
use crate::error::{Error, RemoteException, RetryAction};
use crate::names::{Server, TableName};
use crate::proto::admin::{
    CreateTableRequest, GetProcedureResultRequest, GetProcedureResultResponse,
    GetTableDescriptorsRequest, GetTableDescriptorsResponse, GetTableNamesResponse,
    ProcedureResponse, TableRequest,
};
use crate::proto::common::TableState;
use crate::proto::rpc::{Empty, ForeignException};

mod regions;
mod schema;
pub use regions::{Load, RegionStatus};
pub use schema::{Family, TableSpec};

/// Administrative operations. Those that start a procedure of the master wait for its end, up to
/// [`Config::operation_timeout`], even if the active master changes.
///
/// [`Config::operation_timeout`]: crate::Config::operation_timeout
#[derive(Debug, Clone)]
pub struct Admin {
    cluster: Arc<Cluster>,
}

/// States of a procedure.
const RUNNING: i32 = 1;
const FINISHED: i32 = 2;

impl Admin {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Creates a table with regions that are split at `splits`.
    ///
    /// # Errors
    /// Fails if the table exists, or HBase rejects it.
    pub async fn create(&self, table: &TableSpec, splits: &[Bytes]) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let table_schema = table.to_proto()?;
        let split_keys = splits.to_vec();
        let request = CreateTableRequest { table_schema, split_keys, nonce_group, nonce };
        self.change_table("CreateTable", &table.name.parse()?, &request).await
    }

    /// Disables a table.
    ///
    /// # Errors
    /// Fails if the table does not exist or is already disabled.
    pub async fn disable(&self, table: &str) -> Result<(), Error> {
        self.change_state("DisableTable", table).await
    }

    /// Enables a table.
    ///
    /// # Errors
    /// Fails if the table does not exist or is already enabled.
    pub async fn enable(&self, table: &str) -> Result<(), Error> {
        self.change_state("EnableTable", table).await
    }

    /// Deletes a disabled table with all its rows.
    ///
    /// # Errors
    /// Fails if the table does not exist or is enabled.
    pub async fn delete(&self, table: &str) -> Result<(), Error> {
        self.change_state("DeleteTable", table).await
    }

    /// Returns the names of all tables except HBase's system tables.
    pub async fn list(&self) -> Result<Vec<TableName>, Error> {
        let response: GetTableNamesResponse = self.call("GetTableNames", &Empty {}).await?;
        Ok(response.table_names.iter().filter_map(TableName::from_proto).collect())
    }

    /// Returns the schema of a table.
    ///
    /// # Errors
    /// Fails if the table does not exist.
    pub async fn describe(&self, table: &str) -> Result<TableSpec, Error> {
        let table: TableName = table.parse()?;
        let request = GetTableDescriptorsRequest { table_names: vec![table.to_proto()] };
        let response: GetTableDescriptorsResponse =
            self.call("GetTableDescriptors", &request).await?;
        let schema = response.table_schema.first().and_then(TableSpec::from_proto);
        schema.ok_or(Error::NoTable { table })
    }

    async fn change_state(&self, method: &'static str, table: &str) -> Result<(), Error> {
        let table: TableName = table.parse()?;
        let (nonce_group, nonce) = nonces();
        let request = TableRequest { table_name: table.to_proto(), nonce_group, nonce };
        self.change_table(method, &table, &request).await?;
        self.cluster.forget_table(&table);
        Ok(())
    }

    /// Starts a procedure and waits for its end.
    async fn run_procedure(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<(), Error> {
        let deadline = self.cluster.config.operation_deadline();
        let (_, started) = self.call_master(method, request, deadline).await?;
        self.await_procedure(method, started, deadline).await
    }

    /// Runs a procedure on a table. If an earlier attempt got no response and may have been executed, a table that is
    /// already in the target state counts as success. Nonces have the same effect only while the master remembers them.
    async fn change_table(
        &self,
        method: &'static str,
        table: &TableName,
        request: &impl Message,
    ) -> Result<(), Error> {
        let deadline = self.cluster.config.operation_deadline();
        let mut may_have_executed = false;
        let mut failures = 0;
        loop {
            let error = match self.call_once(method, request, deadline).await {
                Ok((_, started)) => {
                    return self.await_procedure(method, started, deadline).await;
                }
                Err(error) => error,
            };
            match target_state(method, &error) {
                Some(state) if may_have_executed => {
                    if self.await_state(method, table, state, deadline).await? {
                        return Ok(());
                    }
                }
                _ if error.retry_action() == RetryAction::Fail => return Err(error),
                _ => may_have_executed |= error.may_have_executed(),
            }
            self.wait_to_retry(method, failures, error, deadline).await?;
            failures += 1;
        }
    }

    /// Waits until a change of the table's state, possibly by another client, is complete. Returns whether the table
    /// then has this state.
    async fn await_state(
        &self,
        method: &'static str,
        table: &TableName,
        state: Option<TableState>,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let has_state = || async {
            match self.cluster.table_state(table, deadline).await? {
                found if found == state => Ok(true),
                Some(TableState::ENABLING | TableState::DISABLING) => {
                    Err(Error::Unfinished { table: table.clone() })
                }
                // A change by another client is complete.
                _ => Ok(false),
            }
        };
        self.retry(method, deadline, has_state).await
    }

    /// Polls a procedure until it has finished.
    async fn await_procedure(
        &self,
        method: &'static str,
        started: ProcedureResponse,
        deadline: Instant,
    ) -> Result<(), Error> {
        let Some(proc_id) = started.proc_id else { return Ok(()) };
        let request = GetProcedureResultRequest { proc_id };
        for delay in POLLING.build() {
            // Unlike all other methods, this one starts with a lowercase letter.
            let polled = self.call_master("getProcedureResult", &request, deadline).await?;
            let (server, state): (Server, GetProcedureResultResponse) = polled;
            match (state.state, state.exception) {
                (FINISHED, None) => return Ok(()),
                (FINISHED, Some(exception)) => {
                    return Err(Error::Refused { server, exception: remote_exception(exception) });
                }
                (RUNNING, _) => {}
                _ => {
                    let reason = format!("no longer knows the result of {method}");
                    return Err(Error::Connection { server, reason });
                }
            }
            if Instant::now() + delay >= deadline {
                let limit = self.cluster.config.operation_timeout;
                return Err(Error::Deadline { operation: method, limit, last: None });
            }
            sleep(delay).await;
        }
        Ok(())
    }

    async fn call<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
    ) -> Result<R, Error> {
        let deadline = self.cluster.config.operation_deadline();
        Ok(self.call_master(method, request, deadline).await?.1)
    }

    /// Calls the active master, and retries until a master responds.
    async fn call_master<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        deadline: Instant,
    ) -> Result<(Server, R), Error> {
        self.retry(method, deadline, || self.call_once(method, request, deadline)).await
    }

    /// Repeats an attempt until it succeeds, or fails with an error for which a retry is useless.
    async fn retry<T, F: Future<Output = Result<T, Error>>>(
        &self,
        operation: &'static str,
        deadline: Instant,
        attempt: impl Fn() -> F,
    ) -> Result<T, Error> {
        let mut failures = 0;
        loop {
            match attempt().await {
                Err(error) if error.retry_action() != RetryAction::Fail => {
                    self.wait_to_retry(operation, failures, error, deadline).await?;
                }
                outcome => return outcome,
            }
            failures += 1;
        }
    }

    /// Waits before a retry, or fails if the deadline comes first.
    async fn wait_to_retry(
        &self,
        operation: &'static str,
        failures: u32,
        error: Error,
        deadline: Instant,
    ) -> Result<(), Error> {
        let delay = backoff::delay(failures);
        if Instant::now() + delay >= deadline {
            let limit = self.cluster.config.operation_timeout;
            return Err(Error::Deadline { operation, limit, last: Some(Arc::new(error)) });
        }
        sleep(delay).await;
        Ok(())
    }

    async fn call_once<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        deadline: Instant,
    ) -> Result<(Server, R), Error> {
        let master = self.cluster.registry.master(deadline).await?.ok_or(Error::NoMaster)?;
        let call = Call::new(method, request, self.cluster.config.call_deadline(deadline));
        let (response, _) = self.cluster.connections.call(&master, Service::Master, call).await?;
        Ok((master, response))
    }
}

/// Returns a nonce group and a nonce. HBase executes requests with the same pair only once.
fn nonces() -> (Option<u64>, Option<u64>) {
    // 0 means no nonce.
    (Some(fastrand::u64(1..)), Some(fastrand::u64(1..)))
}

/// Returns the state that a method leads to (an inner `None`: no table), if the error says that the table already has
/// it or is changing to it.
fn target_state(method: &str, error: &Error) -> Option<Option<TableState>> {
    let Error::Refused { exception, .. } = error else { return None };
    match (method, exception.name()) {
        ("CreateTable", "TableExistsException") | ("EnableTable", "TableNotDisabledException") => {
            Some(Some(TableState::ENABLED))
        }
        ("DisableTable", "TableNotEnabledException") => Some(Some(TableState::DISABLED)),
        ("DeleteTable", "TableNotFoundException") => Some(None),
        _ => None,
    }
}

fn remote_exception(exception: ForeignException) -> RemoteException {
    let generic = exception.generic.unwrap_or_default();
    RemoteException {
        class: generic.class_name.unwrap_or_default(),
        message: generic.message.unwrap_or_default(),
        do_not_retry: true,
        moved_to: None,
    }
}
