//! Creates adtrail's own topics where they are missing, and describes the configuration of topics.

use std::time::Duration;

use config::Kafka;
use rdkafka::admin::{
    AdminClient, AdminOptions, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication, TopicResult,
};
use rdkafka::error::KafkaError;
use tokio::runtime::Builder;

use super::clients::{self, Logged};
use super::error::IngestError;

/// How often a wait for an answer checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// With one partition and the broker's default replication factor.
pub fn topic(name: &str) -> NewTopic<'_> {
    NewTopic::new(name, 1, TopicReplication::Fixed(-1))
}

/// Values of these configuration keys by topic; `None` where Kafka does not return them.
pub fn settings<const N: usize>(
    kafka: &Kafka,
    topics: &[&str],
    keys: [&str; N],
    timeout: Duration,
) -> Result<Vec<[Option<String>; N]>, IngestError> {
    let admin = admin(kafka)?;
    let specifiers: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let answer = wait(admin.describe_configs(&specifiers, &options(timeout)), || false)?;
    let resources = answer.and_then(Result::ok).unwrap_or_default();
    let values = |name: &&str| {
        let is_its =
            |of: &OwnedResourceSpecifier| *of == OwnedResourceSpecifier::Topic((*name).to_owned());
        let mut found = resources.iter().filter_map(|resource| resource.as_ref().ok());
        let found = found.find(|resource| is_its(&resource.specifier));
        keys.map(|key| found?.get(key)?.value.clone())
    };
    Ok(topics.iter().map(values).collect())
}

/// The result for each topic; `None` if asked to stop first.
pub fn create(
    kafka: &Kafka,
    topics: &[NewTopic<'_>],
    timeout: Duration,
    is_stopped: impl Fn() -> bool,
) -> Result<Option<Result<Vec<TopicResult>, KafkaError>>, IngestError> {
    let admin = admin(kafka)?;
    wait(admin.create_topics(topics, &options(timeout)), is_stopped)
}

fn admin(kafka: &Kafka) -> Result<AdminClient<Logged>, IngestError> {
    clients::admin(kafka).create_with_context(Logged).map_err(IngestError::of_client)
}

fn options(timeout: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
}

fn wait<T>(
    answer: impl Future<Output = T>,
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
            answer = answer => Some(answer),
            () = stop => None,
        }
    }))
}
