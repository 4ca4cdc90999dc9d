//! Creates adtrail's own topics, and reads the configuration of topics.

use std::time::Duration;

use config::Kafka;
use rdkafka::admin::{
    AdminClient, AdminOptions, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication, TopicResult,
};
use rdkafka::error::KafkaError;
use tokio::runtime::Builder;

use super::clients::{self, LogOnly};
use super::error::IngestError;

/// Interval between two calls of `is_stopped` while a response is awaited.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Returns a new topic with one partition and the broker's default replication factor.
pub fn topic(name: &str) -> NewTopic<'_> {
    NewTopic::new(name, 1, TopicReplication::Fixed(-1))
}

/// Returns the values of these configuration keys for each topic; `None` where Kafka does not return them.
pub fn settings<const N: usize>(
    kafka: &Kafka,
    topics: &[&str],
    keys: [&str; N],
    timeout: Duration,
) -> Result<Vec<[Option<String>; N]>, IngestError> {
    let admin = admin(kafka)?;
    let specifiers: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let response = wait(admin.describe_configs(&specifiers, &options(timeout)), || false)?;
    let resources = response.and_then(Result::ok).unwrap_or_default();
    let values = |name: &&str| {
        let topic = OwnedResourceSpecifier::Topic((*name).to_owned());
        let mut found = resources.iter().filter_map(|resource| resource.as_ref().ok());
        let found = found.find(|resource| resource.specifier == topic);
        keys.map(|key| found?.get(key)?.value.clone())
    };
    Ok(topics.iter().map(values).collect())
}

/// Creates topics and returns the result for each; `None` if `is_stopped` returned true first.
pub fn create(
    kafka: &Kafka,
    topics: &[NewTopic<'_>],
    timeout: Duration,
    is_stopped: impl Fn() -> bool,
) -> Result<Option<Result<Vec<TopicResult>, KafkaError>>, IngestError> {
    let admin = admin(kafka)?;
    wait(admin.create_topics(topics, &options(timeout)), is_stopped)
}

fn admin(kafka: &Kafka) -> Result<AdminClient<LogOnly>, IngestError> {
    clients::client(kafka, &[]).create_with_context(LogOnly).map_err(IngestError::of_client)
}

fn options(timeout: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
}

fn wait<T>(
    response: impl Future<Output = T>,
    is_stopped: impl Fn() -> bool,
) -> Result<Option<T>, IngestError> {
    let runtime =
        Builder::new_current_thread().enable_time().build().map_err(IngestError::Thread)?;
    let stop = async {
        while !is_stopped() {
            tokio::time::sleep(STOP_CHECK_INTERVAL).await;
        }
    };
    Ok(runtime.block_on(async {
        tokio::select! {
            response = response => Some(response),
            () = stop => None,
        }
    }))
}
