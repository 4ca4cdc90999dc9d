//! The registry, a service of every server. It returns other servers, the location of `hbase:meta`, and the master.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{Instant, sleep};

use super::connections::Connections;
use super::location::Region;
use crate::config::Config;
use crate::connection::{Call, Service};
use crate::error::{Error, RetryAction, backoff};
use crate::names::{Server, TableName};
use crate::proto::rpc::{
    Empty, GetActiveMasterResponse, GetBootstrapNodesResponse, GetMetaRegionLocationsResponse,
};

/// The fixed name of the region of `hbase:meta`.
const META_REGION: &[u8] = b"hbase:meta,,1";
/// A method that exists since HBase 2.5.
const NEW_METHOD: &str = "GetBootstrapNodes";

#[derive(Debug)]
pub struct Registry {
    config: Arc<Config>,
    connections: Arc<Connections>,
    /// Servers with a registry, found in addition to the configured ones.
    nodes: Mutex<Vec<Server>>,
}

impl Registry {
    /// Finds a server that responds, and through it others, so that the configured ones may leave the cluster.
    ///
    /// # Errors
    /// Fails if no configured server responds as HBase 2.5 or later.
    pub async fn connect(
        config: Arc<Config>,
        connections: Arc<Connections>,
    ) -> Result<Self, Error> {
        let deadline = config.operation_deadline();
        let registry = Self { config, connections, nodes: Mutex::default() };
        let _: Empty = registry.call_any("GetClusterId", deadline).await?;
        registry.remember_nodes(&registry.call_any(NEW_METHOD, deadline).await?);
        Ok(registry)
    }

    /// Replaces the known servers. In a large cluster, the response lists only some of the region servers.
    fn remember_nodes(&self, found: &GetBootstrapNodesResponse) {
        let mut nodes: Vec<_> = found.server_name.iter().filter_map(Server::from_proto).collect();
        // In its first seconds, a region server lists none.
        if !nodes.is_empty() {
            fastrand::shuffle(&mut nodes);
            *self.nodes.lock() = nodes;
        }
    }

    /// Returns the active master, or `None` while the cluster has none: reads and writes continue without it.
    pub async fn master(&self, deadline: Instant) -> Result<Option<Server>, Error> {
        let response: GetActiveMasterResponse = self.call_any("GetActiveMaster", deadline).await?;
        Ok(response.server_name.as_ref().and_then(Server::from_proto))
    }

    pub async fn meta_region(&self, deadline: Instant) -> Result<Arc<Region>, Error> {
        let response: GetMetaRegionLocationsResponse =
            self.call_any("GetMetaRegionLocations", deadline).await?;
        let first = response.meta_locations.iter().find(|location| {
            // Replica 0 is the primary; others may lag behind.
            location.region_info.replica_id.unwrap_or(0) == 0
        });
        let server = first.and_then(|location| location.server_name.as_ref());
        let server = server.and_then(Server::from_proto).ok_or_else(|| Error::NoServer {
            table: TableName::meta(),
            region: Bytes::new()..Bytes::new(),
        })?;
        let (start, end) = (Bytes::new(), Bytes::new());
        Ok(Arc::new(Region { name: Bytes::from_static(META_REGION), id: 1, start, end, server }))
    }

    /// Calls one server after the other until one responds. Retries while any of them reports that it is starting.
    async fn call_any<R: Message + Default>(
        &self,
        method: &'static str,
        deadline: Instant,
    ) -> Result<R, Error> {
        let mut failures = 0;
        loop {
            let mut errors = Vec::new();
            for server in self.candidates() {
                match self.call_server(&server, method, deadline).await {
                    Ok(response) => {
                        if !errors.is_empty() {
                            // Refreshes the list, because over time all known servers may leave the cluster.
                            let nodes = self.call_server(&server, NEW_METHOD, deadline).await;
                            self.remember_nodes(&nodes.unwrap_or_default());
                        }
                        return Ok(response);
                    }
                    Err(error) if is_unknown_method(&error) => {
                        return Err(Error::OldServer { server, method: NEW_METHOD });
                    }
                    Err(error) => errors.push(error),
                }
            }
            let delay = backoff::delay(failures);
            let is_starting =
                errors.iter().any(|error| error.retry_action() == RetryAction::BackOff);
            if !is_starting || Instant::now() + delay >= deadline {
                let tried: Vec<_> = errors.iter().map(Error::to_string).collect();
                return Err(Error::Bootstrap { tried: tried.join("; ") });
            }
            sleep(delay).await;
            failures += 1;
        }
    }

    async fn call_server<R: Message + Default>(
        &self,
        server: &Server,
        method: &'static str,
        deadline: Instant,
    ) -> Result<R, Error> {
        let limit = self.config.connect_timeout;
        let call = Call::new(method, &Empty {}, deadline.min(Instant::now() + limit));
        let outcome = self.connections.call(server, Service::Registry, call).await;
        outcome.map(|(response, _)| response).map_err(|error| match error {
            Error::Deadline { operation, .. } => {
                let reason = format!("no response to {operation} within {limit:?}");
                Error::Connection { server: server.clone(), reason }
            }
            error => error,
        })
    }

    /// Returns the servers to call: those that the cluster listed, then the configured ones.
    fn candidates(&self) -> Vec<Server> {
        let mut servers = self.nodes.lock().clone();
        let mut configured = self.config.servers.clone();
        fastrand::shuffle(&mut configured);
        configured.retain(|server| !servers.contains(server));
        servers.extend(configured);
        servers
    }
}

fn is_unknown_method(error: &Error) -> bool {
    let Error::Refused { exception, .. } = error else { return false };
    exception.name() == "UnsupportedOperationException"
        || exception.message.contains("UnsupportedOperationException")
}
