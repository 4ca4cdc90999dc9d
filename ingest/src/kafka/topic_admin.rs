//! Topics of adtrail's own, made where they are missing.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use config::Kafka;
use rdkafka::admin::{
    AdminClient, AdminOptions, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication, TopicResult,
};
use rdkafka::error::KafkaError;

use super::clients::{self, Logged};
use super::error::IngestError;

const POLL: Duration = Duration::from_millis(5);

/// One partition, copied as often as the broker's default has it.
pub fn topic(name: &str) -> NewTopic<'_> {
    NewTopic::new(name, 1, TopicReplication::Fixed(-1))
}

/// Some settings of each topic; `None` for those of which Kafka does not tell them.
pub fn settings<const N: usize>(
    kafka: &Kafka,
    topics: &[&str],
    keys: [&str; N],
    timeout: Duration,
) -> Result<Vec<[Option<String>; N]>, IngestError> {
    let admin = admin(kafka)?;
    let asked: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let answer = wait(admin.describe_configs(&asked, &options(timeout)), || false);
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

/// What became of each topic; `None` if asked to stop first.
pub fn create(
    kafka: &Kafka,
    topics: &[NewTopic<'_>],
    timeout: Duration,
    is_stopped: impl Fn() -> bool,
) -> Result<Option<Result<Vec<TopicResult>, KafkaError>>, IngestError> {
    let admin = admin(kafka)?;
    Ok(wait(admin.create_topics(topics, &options(timeout)), is_stopped))
}

fn admin(kafka: &Kafka) -> Result<AdminClient<Logged>, IngestError> {
    clients::admin(kafka).create_with_context(Logged).map_err(IngestError::of_client)
}

fn options(timeout: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
}

fn wait<T>(answer: impl Future<Output = T>, is_stopped: impl Fn() -> bool) -> Option<T> {
    let mut answer = pin!(answer);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return Some(answer),
            Poll::Pending if is_stopped() => return None,
            Poll::Pending => thread::sleep(POLL),
        }
    }
}
