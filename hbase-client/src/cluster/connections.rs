//! The open connections, one per server and service. Concurrent callers share them.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use prost::Message;
use tokio::sync::OnceCell;

use crate::config::Config;
use crate::connection::transport::Transport;
use crate::connection::{Call, Connection, Service};
use crate::error::Error;
use crate::names::Server;

/// A connection, or the error of opening it. Concurrent callers share one attempt.
type Slot = Arc<OnceCell<Result<Arc<Connection>, Error>>>;

#[derive(Debug)]
pub struct Connections {
    config: Arc<Config>,
    transport: Box<dyn Transport>,
    slots: DashMap<(Server, Service), Slot>,
}

impl Connections {
    pub fn new(config: Arc<Config>, transport: Box<dyn Transport>) -> Self {
        Self { config, transport, slots: DashMap::new() }
    }

    pub async fn call<M: Message, R: Message + Default>(
        &self,
        server: &Server,
        service: Service,
        call: Call<'_, M>,
    ) -> Result<(R, Bytes), Error> {
        self.get(server, service).await?.call(call).await
    }

    /// Returns the connection to a service, and opens it if needed.
    pub async fn get(&self, server: &Server, service: Service) -> Result<Arc<Connection>, Error> {
        let key = (server.clone(), service);
        let slot = self.slot(&key);
        let opened = slot.get_or_init(|| async {
            let transport = &*self.transport;
            Connection::open(&self.config, transport, server, service).await.map(Arc::new)
        });
        let opened = opened.await.clone();
        if opened.is_err() {
            self.slots.remove_if(&key, |_, known| Arc::ptr_eq(known, &slot));
        }
        opened
    }

    /// Returns the slot of a service, and empties it first if its connection has closed.
    fn slot(&self, key: &(Server, Service)) -> Slot {
        let mut slot = self.slots.entry(key.clone()).or_default();
        if matches!(slot.get(), Some(Ok(connection)) if connection.is_closed()) {
            *slot = Slot::default();
        }
        slot.clone()
    }

    /// Closes all connections to a server.
    pub fn close_all(&self, server: &Server, error: &Error) {
        let mut dropped = Vec::new();
        self.slots.retain(|(known, _), slot| {
            let is_kept = known != server || slot.get().is_none();
            if !is_kept {
                dropped.push(slot.clone());
            }
            is_kept
        });
        for slot in dropped {
            if let Some(Ok(connection)) = slot.get() {
                // Other calls on the connection may have been executed, whatever the error says about its own call.
                let (server, reason) = (server.clone(), error.to_string());
                connection.close(Error::Connection { server, reason });
            }
        }
    }
}
