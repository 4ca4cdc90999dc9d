//! The entry points: a client and its tables.

use std::sync::Arc;

use crate::admin::Admin;
use crate::batch;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::connection::transport::{self, Transport};
use crate::error::Error;
use crate::names::TableName;
use crate::rows::{Action, CheckAndMutate, Get, Mutation, Outcome, Row};
use crate::scan::{Rows, Scan};

/// A client of one cluster. Clones share connections and cached region locations; use one per program.
#[derive(Debug, Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
}

impl Client {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// Fails if no configured server responds as HBase 2.5 or later. If a server reports that it is starting, waits for
    /// it, up to [`Config::operation_timeout`]. If all servers refuse the connection or do not respond within
    /// [`Config::connect_timeout`], fails without a retry, because a wrong address looks the same: a program that
    /// starts together with the cluster must retry this call.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let transport = transport::configured(&config)?;
        Self::connect_over(config, transport).await
    }

    /// Connects like [`Client::connect`], over a custom transport instead of TCP or TLS.
    ///
    /// # Errors
    /// Fails like [`Client::connect`].
    pub async fn connect_over(
        config: Config,
        transport: Box<dyn Transport>,
    ) -> Result<Self, Error> {
        let cluster = Arc::new(Cluster::connect(config, transport).await?);
        Ok(Self { cluster })
    }

    /// Returns a handle for a table, without checking that it exists.
    ///
    /// # Errors
    /// Fails if the name is not valid.
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(Table { cluster: self.cluster.clone(), name: name.parse()? })
    }

    pub fn admin(&self) -> Admin {
        Admin::new(self.cluster.clone())
    }
}

/// A handle for the rows of a table.
#[derive(Debug, Clone)]
pub struct Table {
    cluster: Arc<Cluster>,
    name: TableName,
}

impl Table {
    /// Reads one row, like [`Table::get_many`].
    pub async fn get(&self, get: Get) -> Result<Option<Row>, Error> {
        single(self.get_many(vec![get]).await)
    }

    /// Reads rows. Returns one outcome per row, in the order of `gets`; `None` for a row that does not exist or has
    /// none of the selected cells.
    pub async fn get_many(&self, gets: Vec<Get>) -> Vec<Result<Option<Row>, Error>> {
        let outcomes = self.run(gets.into_iter().map(Action::Get)).await;
        outcomes
            .map(|outcome| {
                outcome.map(|outcome| match outcome {
                    Outcome::Row(row) => row,
                    Outcome::Checked(_) => None,
                })
            })
            .collect()
    }

    /// Writes one row, like [`Table::mutate_many`].
    ///
    /// # Errors
    /// Fails as described in [`Error`]. The row may have been written nevertheless.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<(), Error> {
        single(self.mutate_many(vec![mutation.into()]).await)
    }

    /// Writes rows, in no particular order. Returns one outcome per row, in the order of `mutations`. A row whose
    /// outcome is an error, such as a deadline, may have been written nevertheless.
    pub async fn mutate_many(&self, mutations: Vec<Mutation>) -> Vec<Result<(), Error>> {
        let actions = mutations.into_iter().map(|mutation| Action::Mutate(mutation.change));
        self.run(actions).await.map(|outcome| outcome.map(drop)).collect()
    }

    /// Changes one row if its condition holds, like [`Table::check_and_mutate_many`].
    ///
    /// # Errors
    /// Fails with [`Error::Uncertain`] if it is unknown whether the change was applied.
    pub async fn check_and_mutate(&self, check: CheckAndMutate) -> Result<bool, Error> {
        single(self.check_and_mutate_many(vec![check]).await)
    }

    /// Changes the rows whose conditions hold. Returns, in the order of `checks`, whether each condition held. If an
    /// attempt without a response may have applied the change, and no later attempt shows whether it did, the outcome
    /// is [`Error::Uncertain`], whatever the last error was. Any other error means that the change was not applied.
    pub async fn check_and_mutate_many(
        &self,
        checks: Vec<CheckAndMutate>,
    ) -> Vec<Result<bool, Error>> {
        let outcomes = self.run(checks.into_iter().map(Action::Check)).await;
        let is_applied = |outcome| matches!(outcome, Outcome::Checked(true));
        outcomes.map(|outcome| outcome.map(is_applied)).collect()
    }

    /// Starts to read a range of rows in a new task.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn scan(&self, scan: Scan) -> Rows {
        Rows::start(self.cluster.clone(), self.name.clone(), scan)
    }

    async fn run(
        &self,
        actions: impl Iterator<Item = Action>,
    ) -> impl Iterator<Item = Result<Outcome, Error>> {
        batch::run(&self.cluster, &self.name, actions.collect()).await
    }
}

/// Returns the outcome of a batch of one action.
fn single<T>(outcomes: Vec<Result<T, Error>>) -> Result<T, Error> {
    outcomes.into_iter().next().unwrap_or(Err(Error::Closed))
}
