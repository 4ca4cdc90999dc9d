//! Topics without read access, and batches that cannot be decompressed.

use super::dead_letters::{header_text, letters};
use super::*;

/// While a topic cannot be read, its lag is unknown, so neither a lag of 0 nor readiness may be reported.
#[test]
fn a_topic_without_read_access_is_reported_and_read_once_allowed() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let running = Running::start_quick(&broker.config(""), &[]);
    running.take(1);
    wait_until("the reader is ready", || running.health.is_ready());
    broker.set_error(CLICKS, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    wait_until("the reader is not ready", || !running.health.is_ready());
    assert_eq!(running.health.denied().as_deref(), Some(CLICKS));
    assert!(running.health.is_connected());
    // This does not change while the other topics are read.
    let lag = |topic| running.health.lag_messages(topic);
    broker.produce(EFFECTS, 0, None);
    broker.flush();
    wait_until("another topic has a lag", || lag(TopicKind::Effects) == 1);
    running.take(1);
    wait_until("another topic has no lag", || lag(TopicKind::Effects) == 0);
    assert!(lag(TopicKind::Clicks) > 0);
    broker.set_error(CLICKS, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
    broker.produce(CLICKS, 0, Some(&click(1)));
    broker.flush();
    assert_eq!(ids(&running.take(1)), ["c-1"]);
    wait_until("the reader is ready again", || running.health.is_ready());
    running.stop().expect("the reader stops cleanly");
}

/// Produces a few kilobytes of zstd that decompress to a batch of three records of 20 MB, with a click after it.
fn produce_compressed(broker: &Broker) {
    let producer: BaseProducer = client(&broker.cluster.bootstrap_servers())
        .set("message.max.bytes", "1000000000")
        .set("batch.size", "1000000000")
        // Long enough to collect all records in one batch, even on a slow machine.
        .set("linger.ms", "5000")
        .set("compression.type", "zstd")
        .create()
        .expect("the producer is created");
    let large = vec![b'0'; 20_000_000];
    for _ in 0..3 {
        let record = BaseRecord::<(), _>::to(CLICKS).partition(1).payload(&large);
        producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    }
    producer.flush(TIMEOUT).expect("the broker answers");
    broker.produce(CLICKS, 1, Some(&click(1)));
    broker.flush();
}

/// Too small for [`produce_compressed`].
const LOW: &str = "[kafka.librdkafka]\nreceive.message.max.bytes = 40000000\n";

fn count(batches: &[Batch], code: ErrorCode) -> u64 {
    batches.iter().map(|batch| batch.intake.of(TopicKind::Clicks).dead_lettered(code)).sum()
}

#[test]
fn a_batch_that_cannot_be_decompressed_is_passed_over() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    produce_compressed(&broker);
    let running = Running::start(&broker.config(LOW), &[]);
    let batches = running.take(5);
    let mut found = ids(&batches);
    found.sort();
    assert_eq!(found, ["c-0", "c-1"]);
    assert_eq!(count(&batches, ErrorCode::Unreadable), 3);
    let positions = batches.iter().flat_map(|batch| &batch.progress.positions);
    let reached = positions.filter(|at| (&*at.topic, at.partition) == (CLICKS, 1));
    assert_eq!(reached.map(|at| at.next_offset).max(), Some(4));
    running.stop().expect("the reader stops cleanly");
    let letters = letters(&broker, "adtrail.clicks.dlq", 3);
    for (offset, letter) in ["0", "1", "2"].into_iter().zip(&letters) {
        assert_eq!((letter.key(), letter.payload()), (None, None));
        let header = |name| header_text(letter, name);
        assert_eq!(header("adtrail.error.code"), Some("unreadable"));
        assert_eq!(header("__connect.errors.topic"), Some(CLICKS));
        assert_eq!(header("__connect.errors.partition"), Some("1"));
        assert_eq!(header("__connect.errors.offset"), Some(offset));
        let message = header("__connect.errors.exception.message").expect("it has a message");
        assert!(message.contains("receive.message.max.bytes"), "{message}");
    }
    // The default limit is large enough.
    let running = Running::start(&broker.config(""), &[]);
    assert_eq!(count(&running.take(5), ErrorCode::TooLarge), 3);
    running.stop().expect("the reader stops cleanly");
}

#[test]
fn a_partition_with_too_many_unreadable_records_is_paused() {
    let broker = Broker::with_topics();
    produce_compressed(&broker);
    let settings = format!("[ingest]\nbad_records_max = 2\n{LOW}");
    let running = Running::start(&broker.config(&settings), &[]);
    assert_eq!(count(&running.take(2), ErrorCode::Unreadable), 2);
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    assert_eq!(ids(&running.take(1)), ["c-0"]);
    running.stop().expect("the reader stops cleanly");
}
