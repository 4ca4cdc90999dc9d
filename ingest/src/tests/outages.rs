//! Topics without read access, and batches that cannot be decompressed.

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

/// Produces a few kilobytes of zstd that decompress to 90 MB of records.
#[test]
fn a_highly_compressed_batch_is_read_or_located_in_the_error() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let producer: BaseProducer = client(&broker.cluster.bootstrap_servers())
        .set("message.max.bytes", "1000000000")
        .set("batch.size", "1000000000")
        // Long enough to collect all records in one batch, even on a slow machine.
        .set("linger.ms", "5000")
        .set("compression.type", "zstd")
        .create()
        .expect("the producer is created");
    let large = vec![b'0'; 900_000];
    for _ in 0..100 {
        let record = BaseRecord::<(), _>::to(CLICKS).partition(1).payload(&large);
        producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    }
    producer.flush(TIMEOUT).expect("the broker answers");

    let low = "[kafka.librdkafka]\nreceive.message.max.bytes = 60000000\n";
    let error = Running::start(&broker.config(low), &[]).failure().to_string();
    for part in ["offset 0", "partition 1 of adtrail.clicks", "receive.message.max.bytes"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let running = Running::start(&broker.config(""), &[]);
    running.take(101);
    running.stop().expect("the reader stops cleanly");
}
