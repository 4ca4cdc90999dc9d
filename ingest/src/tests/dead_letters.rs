//! Dead letters: their content, and that reading waits for them.

use rdkafka::message::OwnedMessage;

use super::*;

/// Reads the first `count` dead letters of a topic.
pub fn letters(broker: &Broker, topic: &str, count: usize) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = client(&broker.cluster.bootstrap_servers())
        .set("group.id", "letters")
        .create()
        .expect("the consumer is created");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning).expect("the offset is valid");
    consumer.assign(&list).expect("the partition is assigned");
    let (mut found, start) = (Vec::new(), Instant::now());
    while found.len() < count {
        assert!(start.elapsed() < TIMEOUT, "{} of {count} dead letters", found.len());
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            found.push(message.detach());
        }
    }
    found
}

/// Checks that the dead letter of the first invalid click has its value, its headers and the error headers.
#[track_caller]
pub fn check_letter(broker: &Broker, bad: &[u8]) {
    let found = letters(broker, "adtrail.clicks.dlq", 1).remove(0);
    assert_eq!(found.key(), Some(&b"app-x"[..]));
    assert_eq!(found.payload(), Some(bad));
    let headers = found.headers().expect("a dead letter has headers");
    let header = |key: &str| {
        let header = headers.iter().find(|header| header.key == key).expect(key);
        header.value.map(|value| std::str::from_utf8(value).expect("the text is valid UTF-8"))
    };
    assert_eq!(header("own"), Some("kept"));
    assert_eq!(header("null"), None);
    assert_eq!(header("__connect.errors.topic"), Some(CLICKS));
    assert_eq!(header("__connect.errors.partition"), Some("1"));
    assert_eq!(header("__connect.errors.offset"), Some("0"));
    assert_eq!(header("__connect.errors.stage"), Some("VALUE_CONVERTER"));
    assert_eq!(header("__connect.errors.exception.class.name"), Some("adtrail.not_json"));
    assert!(header("__connect.errors.exception.message").is_some());
    assert_eq!(header("adtrail.error.code"), Some("not_json"));
}

#[test]
fn no_batch_overtakes_unacknowledged_dead_letters() {
    let broker = Broker::with_topics();
    let dlq = "adtrail.clicks.dlq";
    broker.set_error(dlq, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();

    let running = Running::start_quick(&broker.config(""), &beginnings());
    wait_until("dead letters wait", || running.health.are_dead_letters_waiting());
    // The records can be in one batch or in two; the batch of the second waits either way.
    let emitted: usize = running.batches.try_iter().map(|batch| batch.facts.len()).sum();
    assert!(emitted <= 1, "{emitted} emitted");
    let uncommitted = running.stop().expect("the reader stops cleanly");
    assert_eq!(uncommitted, 2 - emitted as u64);

    let mut positions = beginnings();
    positions[0] = position(CLICKS, 0, 1);
    // Positions of other topics are ignored.
    positions.push(position("other", 0, 9));
    let running = Running::start_quick(&broker.config(""), &positions);
    wait_until("dead letters wait again", || running.health.are_dead_letters_waiting());
    assert!(running.batches.try_recv().is_err());
    broker.set_error(dlq, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
    let batches = running.take(1);
    let reached = &batches[0].progress.positions[0];
    assert_eq!(Position { known: None, last: None, ..reached.clone() }, position(CLICKS, 0, 2));
    assert_eq!(letters(&broker, dlq, 1)[0].payload(), Some(&b"bad"[..]));
    running.stop().expect("the reader stops cleanly");
}

#[test]
fn large_values_become_complete_dead_letters() {
    let broker = Broker::with_topics();
    let large = vec![b'x'; 4 << 20];
    broker.produce(CLICKS, 0, Some(&large));
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let running = Running::start(&broker.config(""), &[]);
    let batches = running.take(2);
    let too_large =
        |batch: &Batch| batch.intake.of(TopicKind::Clicks).dead_lettered(ErrorCode::TooLarge);
    assert_eq!(batches.iter().map(too_large).sum::<u64>(), 1);
    let found = letters(&broker, "adtrail.clicks.dlq", 1).remove(0);
    assert!(found.payload() == Some(&*large));
    running.stop().expect("the reader stops cleanly");
}

/// Returns the text of a header.
pub fn header_text<'m>(letter: &'m OwnedMessage, name: &str) -> Option<&'m str> {
    let headers = letter.headers()?;
    let header = headers.iter().find(|header| header.key == name)?;
    header.value.map(|value| std::str::from_utf8(value).expect("the text is valid UTF-8"))
}

/// Creates a producer of large records that compress well. The mock broker keeps only a few megabytes.
fn compressing(broker: &Broker) -> BaseProducer {
    client(&broker.cluster.bootstrap_servers())
        .set("message.max.bytes", "200000000")
        .set("compression.type", "gzip")
        .create()
        .expect("the producer is created")
}

/// A value that compresses well: Kafka accepts it, but no dead letter can contain it.
#[test]
fn a_value_that_is_too_large_for_a_letter_is_replaced_by_its_length_and_digest() {
    const BYTES: usize = 120_000_000;
    let broker = Broker::with_topics();
    let producer = compressing(&broker);
    let huge = vec![b'0'; BYTES];
    let record = BaseRecord::<(), _>::to(CLICKS).partition(0).payload(&huge);
    producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    producer.flush(TIMEOUT).expect("the broker answers");
    broker.produce(CLICKS, 0, Some(&click(1)));
    broker.flush();

    let running = Running::start(&broker.config(""), &[]);
    assert_eq!(ids(&running.take(2)), ["c-1"]);
    let found = letters(&broker, "adtrail.clicks.dlq", 1).remove(0);
    assert_eq!(found.payload(), None);
    assert_eq!(header_text(&found, "adtrail.error.code"), Some("too_large"));
    assert_eq!(header_text(&found, "__connect.errors.offset"), Some("0"));
    assert_eq!(header_text(&found, "adtrail.value.length"), Some("120000000"));
    // printf '%0120000000d' 0 | sha256sum
    let sha256 = "28827e33bdf47e9e22bf5eae8ead26b430768027b6339cd66ae9bddabb4209c9";
    assert_eq!(header_text(&found, "adtrail.value.sha256"), Some(sha256));
    running.stop().expect("the reader stops cleanly");
}

/// Its topic would accept the value, but letters in memory have a limit of their own.
#[test]
fn a_letter_copies_a_limited_number_of_bytes() {
    let broker = Broker::with_topics();
    let value = vec![b'0'; letter::COPIED_BYTES_MAX + 1];
    let producer = compressing(&broker);
    let record = BaseRecord::<(), _>::to(CLICKS).partition(0).payload(&value);
    producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    producer.flush(TIMEOUT).expect("the broker answers");
    let running = Running::start(&broker.config(""), &[]);
    running.take(1);
    let found = letters(&broker, "adtrail.clicks.dlq", 1).remove(0);
    assert!(found.payload().is_none());
    assert_eq!(header_text(&found, "adtrail.value.length"), Some("16777217"));
    running.stop().expect("the reader stops cleanly");
}

/// The key alone is larger than what a letter may contain.
#[test]
fn a_letter_with_a_large_key_has_only_its_origin() {
    let broker = Broker::with_topics();
    let key = vec![b'k'; letter::COPIED_BYTES_MAX + 1];
    let record = BaseRecord::<_, _>::to(CLICKS).partition(0).key(&key).payload("bad");
    let producer = compressing(&broker);
    producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    producer.flush(TIMEOUT).expect("the broker answers");
    let running = Running::start(&broker.config(""), &[]);
    running.take(1);
    let found = letters(&broker, "adtrail.clicks.dlq", 1).remove(0);
    assert_eq!((found.key(), found.payload()), (None, None));
    assert_eq!(header_text(&found, "adtrail.error.code"), Some("not_json"));
    assert_eq!(header_text(&found, "adtrail.value.length"), Some("3"));
    running.stop().expect("the reader stops cleanly");
}

/// Does not wait for the client, which retries for half a minute before it reports a missing topic.
#[test]
fn dead_letters_that_wait_for_their_topic_are_reported_early() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();
    let dlq = "adtrail.clicks.dlq";
    broker.set_error(dlq, RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    let running = Running::start_quick(&broker.config(""), &[]);
    let health = &running.health;
    wait_until("a record is read", || health.last_message_ms().is_some());
    let read_at = Instant::now();
    wait_until("the wait is reported", || health.are_dead_letters_waiting());
    assert!(read_at.elapsed() < Duration::from_secs(25), "reported after {:?}", read_at.elapsed());
    assert!(!health.is_ready());
    broker.set_error(dlq, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
    running.take(1);
    wait_until("the reader is ready again", || health.is_ready());
    running.stop().expect("the reader stops cleanly");
}

/// A rebalance interrupts a delivery whose dead letters are not acknowledged. Their delivery reports arrive later.
#[test]
fn delivery_reports_of_an_interrupted_delivery_do_not_count_for_the_next() {
    const UNACKNOWLEDGED: usize = 5;
    let broker = Broker::with_topics();
    let config = broker.config("");
    let names = TopicNames::new(&config.kafka.topics);
    let dead_letters = producer::DeadLetters::new(&config.kafka, &names, Timing::default())
        .expect("the producer is created");
    let deliver = |count: usize, tries: usize| {
        let letter = |_| letter::DeadLetter::of_value(TopicKind::Clicks, b"bad");
        let letters: Vec<_> = (0..count).map(letter).collect();
        let mut tries = 0..tries;
        dead_letters.deliver(&letters, || Ok(tries.next().is_some()))
    };
    assert!(deliver(1, usize::MAX).expect("Kafka accepts it"));
    broker.cluster.broker_down(1).expect("the broker exists");
    assert!(!deliver(UNACKNOWLEDGED, 20).expect("no error while the broker is down"));
    // Fewer than are in flight, so that counting one of those would be noticed.
    assert!(
        !deliver(2, 20).expect("no error while the broker is down"),
        "nothing is acknowledged yet"
    );
    broker.cluster.broker_up(1).expect("the broker exists");
    assert!(deliver(3, usize::MAX).expect("Kafka accepts them"));
    let count = 1 + UNACKNOWLEDGED + 2 + 3;
    assert_eq!(letters(&broker, "adtrail.clicks.dlq", count).len(), count);
}
