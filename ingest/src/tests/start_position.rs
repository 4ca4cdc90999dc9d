//! Start positions, and startup without topics or brokers.

use super::*;

#[test]
fn a_position_beyond_the_end_is_fatal() {
    let broker = Broker::with_topics();
    for id in 0..4 {
        broker.produce(CLICKS, 1, Some(&click(id)));
    }
    broker.flush();
    let position = position(CLICKS, 1, 5);
    let error = Running::start(&broker.config(""), &[position]).failure().to_string();
    let expected = "wanted offset 5 of partition 1, the broker has 0 to 4";
    assert!(error.contains(expected) && error.ends_with(CLICKS), "{error}");
}

#[test]
fn a_missing_topic_is_named_with_its_setting() {
    let broker = Broker::new();
    broker.cluster.create_topic(CLICKS, 1, 1).expect("the topic is created");
    let error = Running::start_quick(&broker.config(""), &[]).failure().to_string();
    assert!(error.contains("kafka.activations"), "{error}");
    assert!(error.contains("\"adtrail.activations\""), "{error}");
}

#[test]
fn an_unreachable_broker_is_retried_until_shutdown() {
    // Accepts each connection and closes it, like a broker that is shutting down.
    let broker = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = broker.local_addr().expect("the listener has an address").to_string();
    let running = Running::start_quick(&config(&address, ""), &[]);
    for _ in 0..3 {
        broker.accept().expect("another connection arrives");
    }
    assert!(!running.health.is_connected());
    assert!(!running.health.is_ready());
    assert!(!running.thread.is_finished());
    running.stop().expect("the reader stops cleanly");
}

/// Without a position, nothing would report records that Kafka deletes before they are read.
#[test]
fn partitions_without_records_get_a_position() {
    let broker = Broker::with_topics();
    let running = Running::start(&broker.config(""), &[]);
    let batch = running.batches.recv_timeout(TIMEOUT).expect("a batch is emitted");
    let mut positions = batch.progress.positions.clone();
    positions.sort();
    let mut expected = beginnings();
    expected.sort();
    assert_eq!(positions, expected);
    assert!(batch.facts.is_empty() && running.health.last_message_ms().is_none());
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    // The start positions are reported once.
    let batches = running.take(1);
    assert_eq!(batches[0].progress.positions.len(), 1);
    running.stop().expect("the reader stops cleanly");
}
