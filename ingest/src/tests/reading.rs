//! Batches from records, backpressure, and the end of reading.

use std::collections::BTreeMap;

use super::dead_letters::check_letter;
use super::*;

#[test]
fn records_become_facts_positions_and_dead_letters() {
    let broker = Broker::with_topics();
    for id in 0..10 {
        broker.produce(CLICKS, 0, Some(&click(id)));
    }
    let bad = b"{\"spreadid\":7,\xff\0";
    broker.produce(CLICKS, 1, Some(bad));
    broker.produce(CLICKS, 1, None);
    broker.produce(CLICKS, 1, Some(b""));
    let effect = format!(r#"{{"app":"app-x","name":"n","time":{BROKER_MS}}}"#).into_bytes();
    broker.produce(EFFECTS, 0, Some(&effect));
    let late = format!(r#"{{"app":"app-x","name":"n","time":{}}}"#, BROKER_MS - 8 * 86_400_000);
    broker.produce(EFFECTS, 0, Some(late.as_bytes()));
    broker.flush();

    let running = Running::start(&broker.config(""), &[]);
    let batches = running.take(15);
    let mut ids = ids(&batches);
    ids.retain(|id| id.starts_with("c-"));
    assert_eq!(ids, (0..10).map(|id| format!("c-{id}")).collect::<Vec<_>>());
    let effects = |fact: &&Fact| matches!(fact, Fact::Effect(_));
    assert_eq!(batches.iter().flat_map(|batch| &batch.facts).filter(effects).count(), 1);

    let sum = |count: &dyn Fn(&Intake) -> u64| -> u64 {
        batches.iter().map(|batch| count(&batch.intake)).sum()
    };
    assert_eq!(sum(&|intake| intake.of(TopicKind::Clicks).read), 13);
    assert_eq!(sum(&|intake| intake.of(TopicKind::Clicks).empty), 2);
    assert_eq!(sum(&|i| i.of(TopicKind::Clicks).dead_lettered(ErrorCode::NotJson)), 1);
    assert_eq!(sum(&|intake| intake.of(TopicKind::Effects).read), 2);
    assert_eq!(sum(&|i| i.of(TopicKind::Effects).dead_lettered(ErrorCode::TooLate)), 1);
    // A later batch has later positions. The other partitions have their start position only.
    let positions = batches.into_iter().flat_map(|batch| batch.progress.positions);
    let reached = positions.filter(|at| at.next_offset > 0).map(|at| {
        ((at.topic.to_string(), at.partition), (at.next_offset, at.last.map(|last| last.offset)))
    });
    let reached: Vec<_> = reached.collect::<BTreeMap<_, _>>().into_iter().collect();
    let at = |topic: &str, partition: i32, next_offset: i64| {
        ((topic.to_owned(), partition), (next_offset, Some(next_offset - 1)))
    };
    assert_eq!(reached, [at(CLICKS, 0, 10), at(CLICKS, 1, 3), at(EFFECTS, 0, 2)]);

    check_letter(&broker, bad);

    wait_until("the reader is ready", || running.health.is_ready());
    assert!(running.health.last_message_ms().is_some());
    for topic in TopicKind::ALL {
        wait_until("the lag is 0", || running.health.lag_messages(topic) == 0);
    }
    broker.produce(CLICKS, 0, Some(&click(10)));
    broker.flush();
    wait_until("the lag is 1", || running.health.lag_messages(TopicKind::Clicks) == 1);
    running.take(1);
    wait_until("the lag is 0 again", || running.health.lag_messages(TopicKind::Clicks) == 0);
    let health = running.health.clone();
    running.stop().expect("the reader stops cleanly");
    assert!(!health.is_ready());

    let group: BaseConsumer = client(&broker.cluster.bootstrap_servers())
        .set("group.id", "adtrail")
        .create()
        .expect("the consumer is created");
    let mut list = TopicPartitionList::new();
    list.add_partition(CLICKS, 0);
    let committed =
        group.committed_offsets(list, TIMEOUT).expect("Kafka returns the group's offsets");
    assert_eq!(committed.elements()[0].offset(), Offset::Offset(11));
}

/// The queue is full long enough for the reader to unassign its partitions.
#[test]
fn nothing_is_lost_or_duplicated_by_long_backpressure() {
    const COUNT: usize = 2_000;
    let broker = Broker::with_topics();
    for id in 0..COUNT {
        broker.produce(CLICKS, 0, Some(&click(id)));
    }
    broker.flush();
    let running = Running::start_quick(&broker.config("[ingest]\nbatch_records_max = 100"), &[]);
    wait_until("a batch is emitted", || running.health.last_message_ms().is_some());
    // While batches wait, the end of a partition is queried only after the reader has unassigned it. Twice, because the
    // first lag may be from before the queue was full.
    for added in 1..=2 {
        broker.produce(CLICKS, 0, Some(&click(COUNT + added - 1)));
        broker.flush();
        let lag = (COUNT + added) as u64;
        wait_until("the lag includes the new record", || {
            running.health.lag_messages(TopicKind::Clicks) == lag
        });
    }
    let expected: Vec<_> = (0..COUNT + 2).map(|id| format!("c-{id}")).collect();
    assert_eq!(ids(&running.take(COUNT as u64 + 2)), expected);
    running.stop().expect("the reader stops cleanly");
}

#[test]
fn reading_ends_if_the_receiver_is_dropped() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let Running { batches, thread, .. } = Running::start(&broker.config(""), &[]);
    drop(batches);
    // The first batch may have been emitted before.
    broker.produce(CLICKS, 0, Some(&click(1)));
    broker.flush();
    let outcome = thread.join().expect("the thread does not panic");
    assert!(matches!(outcome, Err(IngestError::NoReceiver)), "{outcome:?}");
}

/// The last record is invalid and pauses its partition, which shows that all records before it were read.
#[test]
fn the_partial_batch_is_emitted_at_shutdown() {
    let broker = Broker::with_topics();
    (0..3).for_each(|id| broker.produce(CLICKS, 0, Some(&click(id))));
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();
    let settings = "[ingest]\nbatch_age_max = \"1h\"\nbatch_records_max = 2\nbad_records_max = 0";
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let config = broker.config(settings);
    let running = ::metrics::with_local_recorder(&recorder, || Running::start(&config, &[]));
    assert_eq!(ids(&running.take(2)), ["c-0", "c-1"]);
    let paused = "adtrail_ingest_paused_partitions{topic=\"adtrail.clicks\",reason=\"bad\"} 1";
    wait_until("the other records are read", || handle.render().lines().any(|line| line == paused));
    assert!(running.batches.try_recv().is_err(), "the batch is not full");
    running.shutdown.request();
    assert_eq!(ids(&running.take(1)), ["c-2"]);
    let disconnected = running.batches.recv_timeout(TIMEOUT);
    assert_eq!(disconnected.err(), Some(mpsc::RecvTimeoutError::Disconnected));
    running.stop().expect("the reader stops cleanly");
}
