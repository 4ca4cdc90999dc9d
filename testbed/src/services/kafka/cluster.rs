//! A cluster of three nodes, each a broker and a controller. All data has three replicas, and two nodes are enough to
//! write.

use std::path::Path;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::{MetadataPartition, MetadataTopic};

use super::{Kafka, Ports, server_properties};
use crate::{DEADLINE, eventually};

const NODES: usize = 3;

#[derive(Debug)]
pub struct Cluster(Vec<Kafka>);

impl Cluster {
    pub fn start() -> Self {
        // Another process may take a port between `free_port` and its use: retry once.
        Self::try_start()
            .or_else(|_| Self::try_start())
            .unwrap_or_else(|log| panic!("Kafka does not start:\n{log}"))
    }

    fn try_start() -> Result<Self, String> {
        let ports: Vec<Ports> = (0..NODES).map(|_| Ports::free()).collect();
        let brokers: Vec<String> = ports.iter().map(Ports::broker).collect();
        let node = |number: usize| {
            let settings = |dir: &Path| node_properties(&ports, number, dir);
            let mut node = Kafka::format(settings, brokers.join(","), &[]);
            node.run();
            node
        };
        let cluster = Self((0..NODES).map(node).collect());
        cluster.0.iter().try_for_each(Kafka::await_response)?;
        cluster.await_brokers()?;
        Ok(cluster)
    }

    /// A client's view of the whole cluster, usable while a node is down.
    pub fn kafka(&self) -> &Kafka {
        &self.0[0]
    }

    /// Returns the node that leads a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> usize {
        let client: BaseConsumer = self.kafka().client().create().expect("the client is created");
        eventually("the partition has a leader", || {
            let metadata =
                client.fetch_metadata(Some(topic), DEADLINE).map_err(|e| e.to_string())?;
            let mut partitions = metadata.topics()[0].partitions().iter();
            // Node ids start at 1.
            match partitions.find(|one| one.id() == partition).map(|one| one.leader()) {
                Some(id @ 1..) => Ok(id as usize - 1),
                other => Err(format!("{other:?}")),
            }
        })
    }

    pub fn kill9(&mut self, node: usize) {
        self.0[node].kill9();
    }

    /// Restarts a node, and waits until all its replicas are in sync.
    pub fn restart(&mut self, node: usize) {
        self.0[node].restart();
        let client: BaseConsumer = self.kafka().client().create().expect("the client is created");
        // Check all topics, including internal and dead-letter topics: otherwise a leader that is killed later may have
        // no successor.
        eventually("all replicas are in sync", || {
            let metadata = client.fetch_metadata(None, DEADLINE).map_err(|e| e.to_string())?;
            let is_whole = |partition: &MetadataPartition| partition.isr().len() == NODES;
            let lagging: Vec<_> = metadata
                .topics()
                .iter()
                .filter(|topic| !topic.partitions().iter().all(is_whole))
                .map(MetadataTopic::name)
                .collect();
            if lagging.is_empty() { Ok(()) } else { Err(format!("{lagging:?}")) }
        });
    }

    fn await_brokers(&self) -> Result<(), String> {
        let client: BaseConsumer = self.kafka().client().create().expect("the client is created");
        eventually("all brokers have joined", || {
            let logs: Vec<String> = self.0.iter().map(Kafka::log).collect();
            if let Some(log) = logs.into_iter().find(|log| log.contains("already in use")) {
                return Ok(Err(log));
            }
            match client.fetch_metadata(None, Duration::from_secs(1)) {
                Ok(metadata) if metadata.brokers().len() == NODES => Ok(Ok(())),
                Ok(metadata) => Err(format!("brokers: {}", metadata.brokers().len())),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// The properties of a single broker, changed to those of a cluster node.
fn node_properties(ports: &[Ports], number: usize, dir: &Path) -> String {
    let alone = server_properties(&ports[number], dir);
    let is_kept = |line: &&str| {
        !["node.id=", "controller.quorum.", "offsets.topic.replication"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let common: String = alone.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    let voter =
        |(node, ports): (usize, &Ports)| format!("{}@127.0.0.1:{}", node + 1, ports.controller);
    let voters: Vec<String> = ports.iter().enumerate().map(voter).collect();
    format!(
        "{common}node.id={}
controller.quorum.voters={}
default.replication.factor={NODES}
min.insync.replicas=2
offsets.topic.replication.factor={NODES}
",
        number + 1,
        voters.join(",")
    )
}
