//! The way in: a client, and its tables.

use std::sync::Arc;

use crate::action::{Action, CheckAndMutate, Get, Mutation, Outcome};
use crate::admin::Admin;
use crate::batch;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
use crate::names::TableName;
use crate::rows::Row;
use crate::scan::{Rows, Scan};
use crate::transport::{self, Transport};

/// A client of one cluster. Clones share connections and what is known of the cluster; one for a
/// whole program is best.
#[derive(Debug, Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
}

impl Client {
    /// # Errors
    /// Where none of the servers answers as HBase 2.5 or later does. One that says that it is just
    /// starting is waited for, as long as an operation may take. Where connections are refused, or nobody
    /// answers within [`Config::connect_timeout`], that is told once all servers were tried, as a wrong address
    /// looks the same: who starts together with the cluster calls this again.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let transport = transport::configured(&config)?;
        Self::connect_over(config, transport).await
    }

    /// As [`Client::connect`], by other ways than TCP and TLS.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_over(
        config: Config,
        transport: Box<dyn Transport>,
    ) -> Result<Self, Error> {
        let cluster = Arc::new(Cluster::connect(config, transport).await?);
        Ok(Self { cluster })
    }

    /// Whether there is such a table is found out when it is used.
    ///
    /// # Errors
    /// Where that can be no table's name.
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(Table { cluster: self.cluster.clone(), name: name.parse()? })
    }

    pub fn admin(&self) -> Admin {
        Admin::new(self.cluster.clone())
    }
}

/// A table's rows.
#[derive(Debug, Clone)]
pub struct Table {
    cluster: Arc<Cluster>,
    name: TableName,
}

impl Table {
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// # Errors
    /// As of [`Table::get_many`].
    pub async fn get(&self, get: Get) -> Result<Option<Row>, Error> {
        one(self.get_many(vec![get]).await)
    }

    /// Reads rows, each with an outcome of its own, in the order asked for. Nothing of a row that is
    /// not there, or has none of the cells selected.
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

    /// # Errors
    /// As of [`Table::mutate_many`].
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<(), Error> {
        one(self.mutate_many(vec![mutation.into()]).await)
    }

    /// Writes rows, each with an outcome of its own, in the order given; they are not written in that
    /// order. What is not known to be written, as at a deadline, may have been all the same.
    pub async fn mutate_many(&self, mutations: Vec<Mutation>) -> Vec<Result<(), Error>> {
        let actions = mutations.into_iter().map(|mutation| Action::Mutate(mutation.change));
        self.run(actions).await.map(|outcome| outcome.map(drop)).collect()
    }

    /// # Errors
    /// As of [`Table::check_and_mutate_many`].
    pub async fn check_and_mutate(&self, check: CheckAndMutate) -> Result<bool, Error> {
        one(self.check_and_mutate_many(vec![check]).await)
    }

    /// Changes rows whose conditions hold: whether each did, in the order given. Where a try without an
    /// answer may have made the change, and none after it told for certain, the error is
    /// [`Error::Uncertain`], whatever it ended with. A change that HBase refuses with another error is not made.
    pub async fn check_and_mutate_many(
        &self,
        checks: Vec<CheckAndMutate>,
    ) -> Vec<Result<bool, Error>> {
        let outcomes = self.run(checks.into_iter().map(Action::Check)).await;
        let held = |outcome| matches!(outcome, Outcome::Checked(true));
        outcomes.map(|outcome| outcome.map(held)).collect()
    }

    /// Reads a range of rows; it begins at once, on a task of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
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

/// Of one action there is one outcome.
fn one<T>(outcomes: Vec<Result<T, Error>>) -> Result<T, Error> {
    outcomes.into_iter().next().unwrap_or(Err(Error::Closed))
}
