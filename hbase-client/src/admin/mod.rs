//! Tables and regions as a whole: made, looked at, and removed.

use std::sync::Arc;

use backon::BackoffBuilder;
use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, sleep};

use crate::backoff::{self, POLLING};
use crate::cluster::Cluster;
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::names::{Server, TableName};
use crate::proto::admin::{
    CreateTableRequest, GetProcedureResultRequest, GetProcedureResultResponse,
    GetTableDescriptorsRequest, GetTableDescriptorsResponse, GetTableNamesResponse,
    ProcedureResponse, TableRequest,
};
use crate::proto::common::TableState;
use crate::proto::rpc::{Empty, ForeignException};
use crate::remote_exception::{RemoteException, RetryAction};

mod regions;
mod schema;
pub use regions::{Load, RegionStatus};
pub use schema::{Family, TableSpec};

/// What masters do. Each waits until it is done, as long as [`Config::operation_timeout`], also
/// while the cluster changes its master.
///
/// [`Config::operation_timeout`]: crate::Config::operation_timeout
#[derive(Debug, Clone)]
pub struct Admin {
    cluster: Arc<Cluster>,
}

/// Of a procedure.
const RUNNING: i32 = 1;
const FINISHED: i32 = 2;

impl Admin {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// With regions that begin at these rows, besides the first one.
    ///
    /// # Errors
    /// Where there is such a table, or the servers refuse it.
    pub async fn create(&self, table: &TableSpec, splits: &[Bytes]) -> Result<(), Error> {
        let (nonce_group, nonce) = nonces();
        let table_schema = table.to_proto()?;
        let split_keys = splits.to_vec();
        let request = CreateTableRequest { table_schema, split_keys, nonce_group, nonce };
        self.change("CreateTable", &table.name.parse()?, &request).await
    }

    /// # Errors
    /// Where there is no such table, or it is disabled already.
    pub async fn disable(&self, table: &str) -> Result<(), Error> {
        self.of_table("DisableTable", table).await
    }

    /// # Errors
    /// Where there is no such table, or it is enabled already.
    pub async fn enable(&self, table: &str) -> Result<(), Error> {
        self.of_table("EnableTable", table).await
    }

    /// Of a table that is disabled: it is gone, with all its rows.
    ///
    /// # Errors
    /// Where there is no such table, or it is enabled.
    pub async fn delete(&self, table: &str) -> Result<(), Error> {
        self.of_table("DeleteTable", table).await
    }

    /// The names of all tables that are not HBase's own.
    ///
    /// # Errors
    /// Where the master does not answer.
    pub async fn list(&self) -> Result<Vec<TableName>, Error> {
        let answer: GetTableNamesResponse = self.ask("GetTableNames", &Empty {}).await?;
        Ok(answer.table_names.iter().filter_map(TableName::from_proto).collect())
    }

    /// # Errors
    /// Where there is no such table.
    pub async fn describe(&self, table: &str) -> Result<TableSpec, Error> {
        let table: TableName = table.parse()?;
        let request = GetTableDescriptorsRequest { table_names: vec![table.to_proto()] };
        let answer: GetTableDescriptorsResponse = self.ask("GetTableDescriptors", &request).await?;
        let schema = answer.table_schema.first().and_then(TableSpec::from_proto);
        schema.ok_or(Error::NoTable { table })
    }

    async fn of_table(&self, method: &'static str, table: &str) -> Result<(), Error> {
        let table: TableName = table.parse()?;
        let (nonce_group, nonce) = nonces();
        let request = TableRequest { table_name: table.to_proto(), nonce_group, nonce };
        self.change(method, &table, &request).await?;
        self.cluster.forget_table(&table);
        Ok(())
    }

    /// Has it done, and waits for it.
    async fn procedure(&self, method: &'static str, request: &impl Message) -> Result<(), Error> {
        let deadline = self.cluster.operation_deadline();
        let (_, begun) = self.ask_server(method, request, deadline).await?;
        self.finish(method, begun, deadline).await
    }

    /// As [`Admin::procedure`], of a table as a whole. Where an earlier try may have been done without an answer,
    /// that what was wanted is so already is no failure. Nonces say the same while a master remembers them.
    async fn change(
        &self,
        method: &'static str,
        table: &TableName,
        request: &impl Message,
    ) -> Result<(), Error> {
        let deadline = self.cluster.operation_deadline();
        let mut may_be_done = false;
        for failed in 0.. {
            let error = match self.ask_once(method, request, deadline).await {
                Ok((_, begun)) => return self.finish(method, begun, deadline).await,
                Err(error) => error,
            };
            match state_already(method, &error) {
                Some(state) if may_be_done => {
                    if self.await_state(method, table, state, deadline).await? {
                        return Ok(());
                    }
                }
                _ if error.retry_action() == RetryAction::Fail => return Err(error),
                _ => may_be_done |= error.may_be_done(),
            }
            self.pause(method, failed, error, deadline).await?;
        }
        Err(Error::Closed)
    }

    /// What was begun by somebody may not have come to its end; whether that is the state that is waited for.
    async fn await_state(
        &self,
        method: &'static str,
        table: &TableName,
        state: Option<TableState>,
        deadline: Instant,
    ) -> Result<bool, Error> {
        for failed in 0.. {
            let error = match self.cluster.state(table, deadline).await {
                Ok(found) if found == state => return Ok(true),
                Ok(Some(TableState::ENABLING | TableState::DISABLING)) => {
                    Error::Unfinished { table: table.clone() }
                }
                // Somebody else's doing is done.
                Ok(_) => return Ok(false),
                Err(error) if error.retry_action() == RetryAction::Fail => return Err(error),
                Err(error) => error,
            };
            self.pause(method, failed, error, deadline).await?;
        }
        Err(Error::Closed)
    }

    /// Waits for what a master has begun.
    async fn finish(
        &self,
        method: &'static str,
        begun: ProcedureResponse,
        deadline: Instant,
    ) -> Result<(), Error> {
        let Some(proc_id) = begun.proc_id else { return Ok(()) };
        let request = GetProcedureResultRequest { proc_id };
        for delay in POLLING.build() {
            // With a small letter, unlike all others.
            let (server, state) = self
                .ask_server::<_, GetProcedureResultResponse>(
                    "getProcedureResult",
                    &request,
                    deadline,
                )
                .await?;
            match (state.state, state.exception) {
                (FINISHED, None) => return Ok(()),
                (FINISHED, Some(exception)) => {
                    return Err(Error::Refused { server, fault: fault_of(exception) });
                }
                (RUNNING, _) => {}
                _ => {
                    let reason = format!("does not know any more whether {method} was done");
                    return Err(Error::Connection { server, reason });
                }
            }
            if Instant::now() + delay >= deadline {
                let limit = self.cluster.config.operation_timeout;
                return Err(Error::Deadline { what: method, limit, last: None });
            }
            sleep(delay).await;
        }
        Ok(())
    }

    async fn ask<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
    ) -> Result<R, Error> {
        let deadline = self.cluster.operation_deadline();
        Ok(self.ask_server(method, request, deadline).await?.1)
    }

    /// Asks whoever is master, until there is one that answers.
    async fn ask_server<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        deadline: Instant,
    ) -> Result<(Server, R), Error> {
        for failed in 0.. {
            let error = match self.ask_once(method, request, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retry_action() == RetryAction::Fail => return Err(error),
                Err(error) => error,
            };
            self.pause(method, failed, error, deadline).await?;
        }
        Err(Error::Closed)
    }

    /// Before the same is tried again after an error, if there is time for it.
    async fn pause(
        &self,
        what: &'static str,
        failed: u32,
        error: Error,
        deadline: Instant,
    ) -> Result<(), Error> {
        let delay = backoff::delay(failed);
        if Instant::now() + delay >= deadline {
            let limit = self.cluster.config.operation_timeout;
            return Err(Error::Deadline { what, limit, last: Some(Arc::new(error)) });
        }
        sleep(delay).await;
        Ok(())
    }

    async fn ask_once<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        deadline: Instant,
    ) -> Result<(Server, R), Error> {
        let master = self.cluster.master(deadline).await?;
        let master = master.ok_or(Error::NoMaster)?;
        let call = Call::new(method, request, self.cluster.call_deadline(deadline));
        let (answer, _) = self.cluster.call(&master, Service::Master, call).await?;
        Ok((master, answer))
    }
}

/// What is asked twice with the same numbers is done once.
fn nonces() -> (Option<u64>, Option<u64>) {
    // 0 says that there is none.
    (Some(fastrand::u64(1..)), Some(fastrand::u64(1..)))
}

/// Where a refusal tells that what was wanted is so already, or on its way: the state of the table at its end.
fn state_already(method: &str, error: &Error) -> Option<Option<TableState>> {
    let Error::Refused { fault, .. } = error else { return None };
    match (method, fault.name()) {
        ("CreateTable", "TableExistsException") | ("EnableTable", "TableNotDisabledException") => {
            Some(Some(TableState::ENABLED))
        }
        ("DisableTable", "TableNotEnabledException") => Some(Some(TableState::DISABLED)),
        ("DeleteTable", "TableNotFoundException") => Some(None),
        _ => None,
    }
}

fn fault_of(exception: ForeignException) -> RemoteException {
    let generic = exception.generic.unwrap_or_default();
    RemoteException {
        class: generic.class_name.unwrap_or_default(),
        message: generic.message.unwrap_or_default(),
        do_not_retry: true,
        moved_to: None,
    }
}
