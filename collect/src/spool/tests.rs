//! The spool over a Kafka that takes and refuses what a test wants. A crash is a copy of the directory.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use ingest::TopicKind;
use ingest::kafka::event_producer::{Outcome, ProduceError};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;

const TIMING: Timing =
    Timing { check_interval: Duration::from_millis(1), retry_interval: Duration::from_millis(1) };
const BYTES_MAX: u64 = 16 << 20;
const LABELS: Labels<'static> = Labels { kind: "click", channel: "c" };

type Answer = fn(&Event, batch: usize) -> Outcome;

/// A cluster whose answer to an event depends on the event and the length of its batch.
#[derive(Clone)]
struct Kafka {
    answer: Arc<Mutex<Option<Answer>>>,
    accepted: Arc<Mutex<Vec<Event>>>,
    /// A directory and its new name, which it gets before the next events are accepted.
    renamed: Arc<Mutex<Option<(PathBuf, PathBuf)>>>,
}

impl Kafka {
    fn away() -> Self {
        Self { answer: Arc::default(), accepted: Arc::default(), renamed: Arc::default() }
    }

    fn up() -> Self {
        let kafka = Self::away();
        kafka.answers(|_, _| Ok(()));
        kafka
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
    }

    fn values(&self) -> Vec<String> {
        let accepted = self.accepted.lock();
        accepted.iter().map(|event| String::from_utf8(event.value.clone()).unwrap()).collect()
    }
}

impl Destination for Kafka {
    fn is_reachable(&self) -> bool {
        self.answer.lock().is_some()
    }

    fn produce(&self, events: &[&Event]) -> Vec<Outcome> {
        let Some(answer) = *self.answer.lock() else {
            return events.iter().map(|_| Err(ProduceError::QueueFull)).collect();
        };
        if let Some((from, to)) = self.renamed.lock().take() {
            fs::rename(from, to).unwrap();
        }
        let answer = |event: &&Event| {
            let outcome = answer(event, events.len());
            if outcome.is_ok() {
                self.accepted.lock().push((*event).clone());
            }
            outcome
        };
        events.iter().map(answer).collect()
    }
}

#[track_caller]
fn eventually(is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not become true");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a spool once the threads of the one before have ended.
fn open(path: &Path, bytes_max: u64, kafka: &Kafka) -> Spool {
    let opened = Mutex::new(None);
    eventually(|| match Spool::start(path, bytes_max, kafka.clone(), TIMING) {
        Ok(spool) => {
            *opened.lock() = Some(spool);
            true
        }
        Err(CollectError::SpoolInUse { .. }) => false,
        Err(error) => panic!("{error}"),
    });
    opened.into_inner().unwrap()
}

fn event(topic: TopicKind, value: &str) -> Event {
    Event { topic, key: "app-x".into(), value: value.into() }
}

async fn append(spool: &Spool, values: &[&str]) -> Vec<Result<(), SpoolError>> {
    let mut writing = Vec::new();
    for value in values {
        writing.push(spool.append(event(TopicKind::Clicks, value), LABELS).await);
    }
    let mut written = Vec::new();
    for writing in writing {
        written.push(writing.written().await);
    }
    written
}

fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

/// Copies the directory as it is on disk now.
fn crash(path: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in files(path, "events") {
        fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
    }
    copy
}

#[tokio::test]
async fn events_are_drained_in_order_once_kafka_answers() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    assert_eq!(append(&spool, &["1", "2", "3"]).await, [Ok(()); 3]);
    assert_eq!(append(&spool, &["4"]).await, [Ok(())]);
    spool.note_failure(TopicKind::Clicks, "app-x");
    assert!(spool.is_kafka_failing(TopicKind::Clicks, "app-x"));
    kafka.answers(|_, _| Ok(()));
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1", "2", "3", "4"]);
    assert!(!spool.state.is_failing(TopicKind::Clicks, "app-x"));
    assert!(files(folder.path(), "events").is_empty());
}

#[tokio::test]
async fn the_next_process_drains_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let values: Vec<_> = (0..3_000).map(|n| format!("{n:01000}")).collect();
    let texts: Vec<_> = values.iter().map(String::as_str).collect();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    assert!(append(&spool, &texts[..1_500]).await.iter().all(Result::is_ok));
    drop(spool);
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    assert_eq!(spool.state.events(), 1_500);
    assert!(append(&spool, &texts[1_500..]).await.iter().all(Result::is_ok));
    assert!(files(folder.path(), "events").len() > 1);
    drop(spool);
    let kafka = Kafka::up();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    eventually(|| spool.state.events() == 0);
    assert!(kafka.values() == values, "{}", kafka.values().len());
}

/// Kafka has acknowledged events, but the process ends before it removes their segment.
#[tokio::test]
async fn a_crash_while_draining_repeats_events_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), BYTES_MAX, &Kafka::away());
    append(&spool, &["1", "2"]).await;
    let crashed = crash(folder.path());
    let kafka = Kafka::up();
    let spool = open(crashed.path(), BYTES_MAX, &kafka);
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1", "2"]);
}

#[tokio::test]
async fn an_unfinished_write_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), BYTES_MAX, &Kafka::away());
    append(&spool, &["1"]).await;
    let whole = crash(folder.path());
    append(&spool, &["2"]).await;
    let bytes = fs::metadata(&files(whole.path(), "events")[0]).unwrap().len();
    for torn_bytes in [bytes + 1, 2 * bytes - 1] {
        let crashed = crash(folder.path());
        let file = &files(crashed.path(), "events")[0];
        fs::File::options().write(true).open(file).unwrap().set_len(torn_bytes).unwrap();
        // A process that ends before Kafka answers leaves no damage behind.
        drop(open(crashed.path(), BYTES_MAX, &Kafka::away()));
        let kafka = Kafka::up();
        let spool = open(crashed.path(), BYTES_MAX, &kafka);
        eventually(|| spool.state.events() == 0);
        assert_eq!(kafka.values(), ["1"]);
        assert!(files(crashed.path(), "damaged").is_empty());
    }
}

#[tokio::test]
async fn a_damaged_segment_is_set_aside_and_its_other_events_are_drained() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), BYTES_MAX, &Kafka::away());
    append(&spool, &["1", "2", "3"]).await;
    let before = crash(folder.path());
    let file = &files(before.path(), "events")[0];
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
    let kafka = Kafka::up();
    let spool = open(before.path(), BYTES_MAX, &kafka);
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1", "3"]);
    assert_eq!(files(before.path(), "damaged").len(), 1);
    assert!(files(before.path(), "events").is_empty());
    // The next process does not find it again, and does not reuse its number.
    drop(spool);
    let spool = open(before.path(), BYTES_MAX, &Kafka::away());
    append(&spool, &["4"]).await;
    let name = |path: &Path| path.file_name().unwrap().to_owned();
    let (damaged, next) = (files(before.path(), "damaged"), files(before.path(), "events"));
    assert!(name(&damaged[0]) < name(&next[0]), "{damaged:?} {next:?}");
}

/// What was damaged while the process ran is found when it is drained.
#[tokio::test]
async fn damage_after_the_start_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    append(&spool, &["1", "2"]).await;
    let file = &files(folder.path(), "events")[0];
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
    kafka.answers(|_, _| Ok(()));
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1"]);
    assert_eq!(files(folder.path(), "damaged").len(), 1);
}

#[tokio::test]
async fn a_full_spool_refuses_events_until_it_is_drained() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let one = event(TopicKind::Clicks, "1").record_bytes();
    let spool = open(folder.path(), 2 * one, &kafka);
    let expected = [Ok(()), Ok(()), Err(SpoolError::Full)];
    assert_eq!(append(&spool, &["1", "2", "3"]).await, expected);
    assert!(!spool.has_room());
    // The files of an earlier process count.
    drop(spool);
    let spool = open(folder.path(), 2 * one, &kafka);
    assert_eq!(append(&spool, &["3"]).await, [Err(SpoolError::Full)]);
    kafka.answers(|_, _| Ok(()));
    eventually(|| spool.state.events() == 0);
    assert!(spool.has_room());
    assert_eq!(append(&spool, &["3"]).await, [Ok(())]);
    eventually(|| kafka.values() == ["1", "2", "3"]);
}

/// A topic that is missing for days neither delays nor refuses the events of others.
#[tokio::test]
async fn only_events_of_a_topic_and_key_that_fail_go_to_disk_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let effect = event(TopicKind::Effects, "1");
    let spool = open(folder.path(), effect.record_bytes(), &Kafka::away());
    spool.append(effect, LABELS).await.written().await.unwrap();
    spool.note_failure(TopicKind::Effects, "app-x");
    assert!(spool.is_kafka_failing(TopicKind::Effects, "app-x"));
    assert!(!spool.is_kafka_failing(TopicKind::Clicks, "app-x"));
    assert!(!spool.is_kafka_failing(TopicKind::Effects, "app-y"));
    // Once the spool is full, Kafka may take what the spool does not.
    assert_eq!(append(&spool, &["2"]).await, [Err(SpoolError::Full)]);
    assert!(!spool.is_kafka_failing(TopicKind::Effects, "app-x"));
}

#[tokio::test]
async fn a_write_that_fails_is_refused_and_later_ones_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("spool"), folder.path().join("moved"));
    let kafka = Kafka::away();
    let spool = open(&path, BYTES_MAX, &kafka);
    fs::rename(&path, &moved).unwrap();
    assert_eq!(append(&spool, &["1"]).await, [Err(SpoolError::Disk)]);
    assert!(!spool.has_room());
    fs::rename(&moved, &path).unwrap();
    assert_eq!(append(&spool, &["2"]).await, [Ok(())]);
    assert!(spool.has_room());
    kafka.answers(|_, _| Ok(()));
    eventually(|| kafka.values() == ["2"]);
}

#[tokio::test]
async fn an_event_that_kafka_will_never_accept_is_kept_as_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    append(&spool, &["1", "large", "3"]).await;
    kafka.answers(|event, _| match &*event.value {
        b"large" => Err(ProduceError::TooLarge),
        _ => Ok(()),
    });
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1", "3"]);
    let rejected = fs::read_to_string(folder.path().join("rejected-clicks.ndjson")).unwrap();
    assert_eq!(rejected, "large\n");
    assert!(files(folder.path(), "events").is_empty());
}

/// A broker refuses a batch of the client that is too large, with all its events.
#[tokio::test]
async fn events_of_a_batch_that_is_too_large_are_produced_alone() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    append(&spool, &["1", "2"]).await;
    kafka.answers(|_, batch| if batch > 1 { Err(ProduceError::BatchTooLarge) } else { Ok(()) });
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["1", "2"]);
    // An event that is too large alone.
    kafka.answers(|_, _| Err(ProduceError::BatchTooLarge));
    append(&spool, &["3"]).await;
    eventually(|| spool.state.events() == 0);
    let rejected = fs::read_to_string(folder.path().join("rejected-clicks.ndjson")).unwrap();
    assert_eq!(rejected, "3\n");
}

/// For example if the rights for one topic are missing, or if a partition has no leader.
#[tokio::test]
async fn events_that_fail_do_not_hold_up_others() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    for (topic, value) in [(TopicKind::Effects, "effect"), (TopicKind::Clicks, "click")] {
        spool.append(event(topic, value), LABELS).await.written().await.unwrap();
    }
    kafka.answers(|event, _| match event.topic {
        TopicKind::Effects => Err(ProduceError::QueueFull),
        _ => Ok(()),
    });
    eventually(|| spool.state.events() == 1);
    append(&spool, &["later"]).await;
    eventually(|| kafka.values() == ["click", "later"]);
    // What Kafka has acknowledged is not repeated.
    drop(spool);
    let kafka = Kafka::up();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["effect"]);
}

/// Kafka takes a part of a segment, and the rest cannot be written again.
#[tokio::test]
async fn acknowledged_events_are_not_repeated_while_the_disk_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("spool"), folder.path().join("moved"));
    let kafka = Kafka::away();
    let spool = open(&path, BYTES_MAX, &kafka);
    let large = (TopicKind::Activations, "large");
    for (topic, value) in [(TopicKind::Effects, "effect"), (TopicKind::Clicks, "click"), large] {
        spool.append(event(topic, value), LABELS).await.written().await.unwrap();
    }
    *kafka.renamed.lock() = Some((path.clone(), moved.clone()));
    kafka.answers(|event, _| match event.topic {
        TopicKind::Effects => Err(ProduceError::QueueFull),
        TopicKind::Activations => Err(ProduceError::TooLarge),
        TopicKind::Clicks => Ok(()),
    });
    eventually(|| !spool.has_room());
    assert_eq!(kafka.values(), ["click"]);
    fs::rename(&moved, &path).unwrap();
    eventually(|| spool.state.events() == 1);
    kafka.answers(|_, _| Ok(()));
    eventually(|| spool.state.events() == 0);
    assert_eq!(kafka.values(), ["click", "effect"]);
    let rejected = fs::read_to_string(path.join("rejected-activations.ndjson")).unwrap();
    assert_eq!(rejected, "large\n");
}

#[tokio::test]
async fn draining_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let kafka = Kafka::away();
    let spool = open(folder.path(), BYTES_MAX, &kafka);
    append(&spool, &["1"]).await;
    spool.stop_draining(Duration::from_secs(60));
    kafka.answers(|_, _| Ok(()));
    assert_eq!(append(&spool, &["2"]).await, [Ok(())]);
    assert_eq!((spool.state.events(), kafka.values().len()), (2, 0));
}
