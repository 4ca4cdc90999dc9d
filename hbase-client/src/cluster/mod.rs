//! A cluster as this client knows it: connections, the registry, and region locations.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::config::Config;
use crate::connection::transport::Transport;
use crate::connection::{Call, Connection, Service};
use crate::error::{Error, RetryAction};
use crate::names::{Server, TableName};

mod locate;
mod location;
mod meta;
mod registry;
use locate::Lookups;
use location::Locations;
pub(crate) use location::Region;
pub(crate) use meta::MetaRow;

/// A connection, or the error of opening it. Concurrent callers share one attempt.
type Slot = Arc<OnceCell<Result<Arc<Connection>, Error>>>;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub config: Config,
    transport: Box<dyn Transport>,
    connections: DashMap<(Server, Service), Slot>,
    tables: DashMap<TableName, Locations>,
    lookups: Lookups,
    /// Servers with a registry, found in addition to the configured ones.
    nodes: Mutex<Vec<Server>>,
}

impl Cluster {
    /// Connects to the registry of a configured server.
    ///
    /// # Errors
    /// Fails if none of them responds as HBase 2.5 or later.
    pub async fn connect(config: Config, transport: Box<dyn Transport>) -> Result<Self, Error> {
        let cluster = Self {
            config,
            transport,
            connections: DashMap::new(),
            tables: DashMap::new(),
            lookups: Lookups::new(),
            nodes: Mutex::default(),
        };
        cluster.bootstrap().await?;
        Ok(cluster)
    }

    /// Returns the deadline of an operation that starts now.
    pub fn operation_deadline(&self) -> Instant {
        Instant::now() + self.config.operation_timeout
    }

    /// Returns the deadline of a call that starts now, within an operation.
    pub fn call_deadline(&self, operation: Instant) -> Instant {
        operation.min(Instant::now() + self.config.call_timeout)
    }

    pub async fn call<M: Message, R: Message + Default>(
        &self,
        server: &Server,
        service: Service,
        call: Call<'_, M>,
    ) -> Result<(R, Bytes), Error> {
        self.connection(server, service).await?.call(call).await
    }

    pub async fn connection(
        &self,
        server: &Server,
        service: Service,
    ) -> Result<Arc<Connection>, Error> {
        let key = (server.clone(), service);
        let slot = self.slot(&key);
        let opened = slot.get_or_init(|| async {
            let transport = &*self.transport;
            Connection::open(&self.config, transport, server, service).await.map(Arc::new)
        });
        let opened = opened.await.clone();
        if opened.is_err() {
            self.connections.remove_if(&key, |_, known| Arc::ptr_eq(known, &slot));
        }
        opened
    }

    /// Returns the slot of a connection, which is empty if the connection has closed.
    fn slot(&self, key: &(Server, Service)) -> Slot {
        let mut slot = self.connections.entry(key.clone()).or_default();
        if matches!(slot.get(), Some(Ok(connection)) if connection.is_closed()) {
            *slot = Slot::default();
        }
        slot.clone()
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

    /// Replaces the cached location if the error has the new one, and removes it otherwise.
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
        // A connection that has ended is not reused anyway, and by now there may be a new one to a restarted server.
        // A connection on which the server responded that it stops is closed for all callers.
        if matches!(error, Error::Refused { .. } | Error::Protocol { .. }) {
            self.close_all(server, error);
        }
    }

    fn close_all(&self, server: &Server, error: &Error) {
        let mut dropped = Vec::new();
        self.connections.retain(|(known, _), slot| {
            let is_kept = known != server || slot.get().is_none();
            if !is_kept {
                dropped.push(slot.clone());
            }
            is_kept
        });
        for slot in dropped {
            if let Some(Ok(connection)) = slot.get() {
                // Other calls on the connection may have been executed, whatever the error says about this one.
                let (server, reason) = (server.clone(), error.to_string());
                connection.close(Error::Connection { server, reason });
            }
        }
    }
}
