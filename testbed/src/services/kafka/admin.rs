//! Topics and consumer groups.

use std::fmt::Debug;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::Kafka;
use super::client::partitions;
use crate::{DEADLINE, eventually};

impl Kafka {
    /// Creates a topic with the brokers' default replication factor. `settings` are topic settings such as
    /// `("retention.ms", "-1")`.
    pub fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        check_each(wait(self.admin().create_topics([&topic], &options())));
        self.await_leaders(name, partitions as usize);
    }

    pub fn delete_topics(&self, names: &[String]) {
        self.forget_producer();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        check_each(wait(self.admin().delete_topics(&names, &options())));
    }

    /// Deletes all records of a topic, as retention does once they are old enough.
    pub fn delete_records(&self, topic: &str) {
        let mut ends = TopicPartitionList::new();
        let client = self.query_client("read_committed");
        for partition in partitions(&client, topic).expect("Kafka responds") {
            ends.add_partition_offset(topic, partition, Offset::End).expect("the offset is valid");
        }
        let deleted = wait(self.admin().delete_records(&ends, &options()));
        deleted
            .elements()
            .iter()
            .for_each(|partition| partition.error().expect("the records are deleted"));
    }

    /// Increases the number of partitions to this total.
    pub fn grow_topic(&self, name: &str, partitions: usize) {
        self.forget_producer();
        let more = NewPartitions::new(name, partitions);
        check_each(wait(self.admin().create_partitions([&more], &options())));
        self.await_leaders(name, partitions);
    }

    /// Changes settings of a topic, which take effect at once.
    pub fn set_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(name));
        let change = settings.iter().fold(change, |change, (key, value)| change.set(key, value));
        check_each(wait(self.admin().alter_configs([&change], &options())));
    }

    /// Returns the lag of a group on these topics.
    pub fn group_lag(&self, group: &str, topics: &[&str]) -> i64 {
        let (client, committed) = self.committed_offsets(group, topics);
        let lag = |at: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            let ends = client.fetch_watermarks(at.topic(), at.partition(), DEADLINE);
            let (low, high) = ends.expect("Kafka responds");
            high - at.offset().to_raw().filter(|offset| *offset >= low).unwrap_or(low)
        };
        committed.elements().iter().map(lag).sum()
    }

    /// Waits until the committed offsets of the group are at the ends of these topics.
    #[track_caller]
    pub fn await_committed(&self, group: &str, topics: &[&str]) {
        eventually("the lag of the group is 0", || match self.group_lag(group, topics) {
            0 => Ok(()),
            lag => Err(format!("lag {lag}")),
        });
    }

    /// Returns the sum of a group's committed offsets on a topic. A partition without a committed offset counts 0.
    pub fn committed(&self, group: &str, topic: &str) -> i64 {
        let (_, committed) = self.committed_offsets(group, &[topic]);
        let offsets = committed.elements();
        offsets
            .iter()
            .filter_map(|partition| partition.offset().to_raw())
            .filter(|offset| *offset > 0)
            .sum()
    }

    /// Returns the number of members of a group that have not timed out.
    pub fn group_members(&self, group: &str) -> usize {
        let client = self.query_client("read_committed");
        let groups = client.fetch_group_list(Some(group), DEADLINE).expect("Kafka responds");
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    /// Deletes a group without members.
    pub fn delete_group(&self, name: &str) {
        check_each(wait(self.admin().delete_groups(&[name], &options())));
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("the client is created")
    }

    /// Returns a client of the group, and the group's committed offsets.
    fn committed_offsets(
        &self,
        group: &str,
        topics: &[&str],
    ) -> (BaseConsumer, TopicPartitionList) {
        let client: BaseConsumer =
            self.client().set("group.id", group).create().expect("the client is created");
        let mut list = TopicPartitionList::new();
        for topic in topics {
            for partition in partitions(&client, topic).expect("Kafka responds") {
                list.add_partition(topic, partition);
            }
        }
        let committed = client.committed_offsets(list, DEADLINE).expect("Kafka responds");
        (client, committed)
    }

    fn await_leaders(&self, name: &str, partitions: usize) {
        let client: BaseConsumer = self.client().create().expect("the client is created");
        eventually("the partitions have leaders", || {
            let metadata =
                client.fetch_metadata(Some(name), DEADLINE).map_err(|error| error.to_string())?;
            let all = metadata.topics().iter().flat_map(|topic| topic.partitions());
            match all.filter(|partition| partition.leader() >= 0).count() {
                count if count == partitions => Ok(()),
                count => Err(format!("partitions with a leader: {count}")),
            }
        });
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(DEADLINE))
}

fn wait<T>(request: impl Future<Output = KafkaResult<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("the runtime starts").block_on(request).expect("Kafka responds")
}

fn check_each<T, N: Debug>(results: Vec<Result<T, (N, RDKafkaErrorCode)>>) {
    for result in results {
        if let Err((name, code)) = result {
            panic!("{name:?}: {code}");
        }
    }
}
