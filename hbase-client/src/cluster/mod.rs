//! The servers of a cluster as this client knows them: connections, the registry, and where the
//! regions are.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::config::Config;
use crate::connection::{Call, Connection, Service};
use crate::error::Error;
use crate::location::{Locations, Region};
use crate::names::{Server, TableName};
use crate::remote_exception::RetryAction;
use crate::transport::Transport;

mod locate;
mod meta;
mod registry;
use locate::Flights;
pub(crate) use meta::MetaRow;

/// A connection, or why there is none; made once for all who want it.
type Slot = Arc<OnceCell<Result<Arc<Connection>, Error>>>;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub config: Config,
    transport: Box<dyn Transport>,
    connections: DashMap<(Server, Service), Slot>,
    tables: DashMap<TableName, Locations>,
    flights: Flights,
    /// Servers that the registry can be asked at, besides those configured.
    nodes: Mutex<Vec<Server>>,
}

impl Cluster {
    /// # Errors
    /// Where no configured server answers as HBase 2.5 does.
    pub async fn connect(config: Config, transport: Box<dyn Transport>) -> Result<Self, Error> {
        let cluster = Self {
            config,
            transport,
            connections: DashMap::new(),
            tables: DashMap::new(),
            flights: Flights::new(),
            nodes: Mutex::default(),
        };
        cluster.bootstrap().await?;
        Ok(cluster)
    }

    /// Of an operation that begins now.
    pub fn operation_deadline(&self) -> Instant {
        Instant::now() + self.config.operation_timeout
    }

    /// Of a call that begins now.
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

    /// The connection there is, or the room for one.
    fn slot(&self, key: &(Server, Service)) -> Slot {
        let mut slot = self.connections.entry(key.clone()).or_default();
        if matches!(slot.get(), Some(Ok(connection)) if connection.is_closed()) {
            *slot = Slot::default();
        }
        slot.clone()
    }

    /// Takes from an error what it tells about where things are.
    pub fn learn(&self, table: &TableName, region: &Region, error: &Error) {
        match error.retry_action() {
            RetryAction::Relocate => self.learn_move(table, region, error),
            RetryAction::DropServer => self.drop_server(&region.server, error),
            RetryAction::BackOff
            | RetryAction::AtOnce
            | RetryAction::Reopen
            | RetryAction::Fail => {}
        }
    }

    fn learn_move(&self, table: &TableName, region: &Region, error: &Error) {
        let moved_to = match error {
            Error::Refused { fault, .. } => fault.moved_to.clone(),
            _ => None,
        };
        let Some(mut locations) = self.tables.get_mut(table) else { return };
        match moved_to.filter(|server| *server != region.server) {
            Some(server) => locations.moved(region, server),
            None => locations.forget(region),
        }
    }

    /// It was made, removed, or changed.
    pub fn forget_table(&self, table: &TableName) {
        self.tables.remove(table);
    }

    /// A server is gone: nothing is where it was.
    fn drop_server(&self, server: &Server, error: &Error) {
        tracing::debug!(%server, %error, "the server is left");
        self.tables.iter_mut().for_each(|mut locations| locations.forget_server(server));
        // A connection that ended is not used any more. One on which the server says that it ends is
        // closed for all; there may be a new one by now to a server that came back.
        if matches!(error, Error::Refused { .. } | Error::Protocol { .. }) {
            self.close_all(server, error);
        }
    }

    fn close_all(&self, server: &Server, error: &Error) {
        let mut dropped = Vec::new();
        self.connections.retain(|(of, _), slot| {
            let stays = of != server || slot.get().is_none();
            if !stays {
                dropped.push(slot.clone());
            }
            stays
        });
        for slot in dropped {
            if let Some(Ok(connection)) = slot.get() {
                // What else was sent on it may have been done, whatever the error says of one call.
                let (server, reason) = (server.clone(), error.to_string());
                connection.close(Error::Connection { server, reason });
            }
        }
    }
}
