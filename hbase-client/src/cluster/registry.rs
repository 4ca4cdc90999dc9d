//! What any server tells of its cluster: who else there is, where `hbase:meta` is, who is master.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, sleep};

use super::Cluster;
use crate::backoff;
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::location::Region;
use crate::names::Server;
use crate::proto::common::ServerName;
use crate::proto::rpc::{
    Empty, GetActiveMasterResponse, GetBootstrapNodesResponse, GetClusterIdResponse,
    GetMetaRegionLocationsResponse,
};
use crate::remote_exception::RetryAction;

/// The only name that the region of `hbase:meta` ever has.
const META_REGION: &[u8] = b"hbase:meta,,1";
/// HBase 2.5 knows it, and earlier ones do not.
const NEW_METHOD: &str = "GetBootstrapNodes";

impl Cluster {
    /// Finds a server that answers, and through it others: the configured ones may go.
    pub(super) async fn bootstrap(&self) -> Result<(), Error> {
        let deadline = self.operation_deadline();
        let _: GetClusterIdResponse = self.ask("GetClusterId", deadline).await?;
        self.find_nodes(deadline).await
    }

    async fn find_nodes(&self, deadline: Instant) -> Result<(), Error> {
        let nodes = self.region_servers(deadline).await?;
        self.remember_nodes(&nodes);
        Ok(())
    }

    fn remember_nodes(&self, nodes: &[ServerName]) {
        let mut nodes: Vec<_> = nodes.iter().filter_map(Server::from_proto).collect();
        // None in a region server's first seconds.
        if !nodes.is_empty() {
            fastrand::shuffle(&mut nodes);
            *self.nodes.lock() = nodes;
        }
    }

    /// Some of them, in a large cluster.
    async fn region_servers(&self, deadline: Instant) -> Result<Vec<ServerName>, Error> {
        let nodes: GetBootstrapNodesResponse = self.ask(NEW_METHOD, deadline).await?;
        Ok(nodes.server_name)
    }

    /// Nothing while the cluster has no master: reading and writing go on without one.
    pub async fn master(&self, deadline: Instant) -> Result<Option<Server>, Error> {
        let answer: GetActiveMasterResponse = self.ask("GetActiveMaster", deadline).await?;
        Ok(answer.server_name.as_ref().and_then(Server::from_proto))
    }

    pub(super) async fn meta_region(&self, deadline: Instant) -> Result<Arc<Region>, Error> {
        let answer: GetMetaRegionLocationsResponse =
            self.ask("GetMetaRegionLocations", deadline).await?;
        let first = answer.meta_locations.iter().find(|location| {
            // Others are replicas, which may be behind.
            location.region_info.replica_id.unwrap_or(0) == 0
        });
        let server = first.and_then(|location| location.server_name.as_ref());
        let server = server.and_then(Server::from_proto).ok_or_else(|| Error::NoServer {
            table: crate::names::TableName::meta(),
            region: Bytes::new()..Bytes::new(),
        })?;
        let (start, end) = (Bytes::new(), Bytes::new());
        Ok(Arc::new(Region { name: Bytes::from_static(META_REGION), id: 1, start, end, server }))
    }

    /// Asks one server after the other. While one says that it is starting, they are asked again.
    async fn ask<R: Message + Default>(
        &self,
        method: &'static str,
        deadline: Instant,
    ) -> Result<R, Error> {
        let mut failed = 0;
        loop {
            let mut errors = Vec::new();
            for server in self.candidates() {
                match self.ask_one(&server, method, deadline).await {
                    Ok(answer) => {
                        if !errors.is_empty() {
                            self.renew_nodes(&server, deadline).await;
                        }
                        return Ok(answer);
                    }
                    Err(error) if does_not_know(&error) => {
                        return Err(Error::OldServer { server, method: NEW_METHOD });
                    }
                    Err(error) => errors.push(error),
                }
            }
            let delay = backoff::delay(failed);
            let waits = errors.iter().any(|error| error.retry_action() == RetryAction::BackOff);
            if !waits || Instant::now() + delay >= deadline {
                let tried: Vec<_> = errors.iter().map(Error::to_string).collect();
                return Err(Error::Bootstrap { tried: tried.join("; ") });
            }
            sleep(delay).await;
            failed += 1;
        }
    }

    /// Those that are known may go one by one, in a year or in a night.
    async fn renew_nodes(&self, server: &Server, deadline: Instant) {
        let nodes = self.ask_one::<GetBootstrapNodesResponse>(server, NEW_METHOD, deadline).await;
        self.remember_nodes(&nodes.unwrap_or_default().server_name);
    }

    async fn ask_one<R: Message + Default>(
        &self,
        server: &Server,
        method: &'static str,
        deadline: Instant,
    ) -> Result<R, Error> {
        let deadline = deadline.min(Instant::now() + self.config.connect_timeout);
        let call = Call::new(method, &Empty {}, deadline);
        let outcome = self.call(server, Service::Registry, call).await;
        outcome.map(|(answer, _)| answer).map_err(|error| match error {
            Error::Deadline { what, .. } => {
                let limit = self.config.connect_timeout;
                let reason = format!("no answer to {what} within {limit:?}");
                Error::Connection { server: server.clone(), reason }
            }
            error => error,
        })
    }

    /// Whom to ask: those that the cluster named, then those of the configuration.
    fn candidates(&self) -> Vec<Server> {
        let mut named = self.nodes.lock().clone();
        let mut configured = self.config.servers.clone();
        fastrand::shuffle(&mut configured);
        configured.retain(|server| !named.contains(server));
        named.extend(configured);
        named
    }
}

fn does_not_know(error: &Error) -> bool {
    let Error::Refused { fault, .. } = error else { return false };
    fault.name() == "UnsupportedOperationException"
        || fault.message.contains("UnsupportedOperationException")
}
