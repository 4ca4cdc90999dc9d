//! A cluster as this client knows it: its connections, its registry, and the locations of its regions. Start with
//! [`Cluster`].

use std::sync::Arc;

use dashmap::DashMap;

use crate::config::Config;
use crate::connection::transport::Transport;
use crate::error::{Error, RetryAction};
use crate::names::{Server, TableName};

mod connections;
mod locate;
mod location;
mod meta;
mod registry;
use connections::Connections;
use locate::Lookups;
use location::Locations;
pub(crate) use location::{Region, range_contains};
pub(crate) use meta::MetaRow;
use registry::Registry;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub config: Arc<Config>,
    pub connections: Arc<Connections>,
    pub registry: Registry,
    tables: DashMap<TableName, Locations>,
    lookups: Lookups,
}

impl Cluster {
    /// Connects to the registry of a configured server.
    ///
    /// # Errors
    /// Fails if no configured server responds as HBase 2.5 or later.
    pub async fn connect(config: Config, transport: Box<dyn Transport>) -> Result<Self, Error> {
        let config = Arc::new(config);
        let connections = Arc::new(Connections::new(config.clone(), transport));
        let registry = Registry::connect(config.clone(), connections.clone()).await?;
        let (tables, lookups) = (DashMap::new(), Lookups::new());
        Ok(Self { config, connections, registry, tables, lookups })
    }

    /// Updates cached locations and connections after an error of a call to a region.
    pub fn handle_error(&self, table: &TableName, region: &Region, error: &Error) {
        match error.retry_action() {
            RetryAction::Relocate => self.relocate(table, region, error),
            RetryAction::DropServer => self.drop_server(&region.server, error),
            RetryAction::BackOff
            | RetryAction::AtOnce
            | RetryAction::Reopen
            | RetryAction::Fail => {}
        }
    }

    /// Replaces the cached location if the error names the new one, and removes it otherwise.
    fn relocate(&self, table: &TableName, region: &Region, error: &Error) {
        let moved_to = match error {
            Error::Refused { exception, .. } => exception.moved_to.clone(),
            _ => None,
        };
        let Some(mut locations) = self.tables.get_mut(table) else { return };
        match moved_to.filter(|server| *server != region.server) {
            Some(server) => locations.set_server(region, server),
            None => locations.forget(region),
        }
    }

    /// Forgets the locations of a table that was created, deleted or changed.
    pub fn forget_table(&self, table: &TableName) {
        self.tables.remove(table);
    }

    /// Forgets all locations on a server that stopped, and closes its connections.
    fn drop_server(&self, server: &Server, error: &Error) {
        tracing::debug!(%server, %error, "dropping a server");
        self.tables.iter_mut().for_each(|mut locations| locations.forget_server(server));
        // After these errors, the connection may still be open, and is closed for all callers. After others it has
        // ended; an open connection would already be a new one to a restarted server.
        if matches!(error, Error::Refused { .. } | Error::Protocol { .. }) {
            self.connections.close_all(server, error);
        }
    }
}
