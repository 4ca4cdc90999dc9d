//! Several workers in one consumer group over a shared store: they join and leave under load, crash between any two
//! writes, and stall until other workers have taken over their partitions. The store is the HBase ledger over a model
//! in memory, with delays between its steps; Kafka and the group are real.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../../store/tests/support/cells.rs"]
mod cells;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use adtrail_store::layout::codec::row::RowView;
use adtrail_store::maintenance::verify::stored_row::row;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::{DecisionWrite, Ledger, Progress};
use attribution::worker::{self, Worker};
use config::Config;
use ingest::{Health, IngestError, Shutdown};
use testbed::exports::{Exports, Workload, by_command, check_equal};
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::traffic::{self, Record};
use testbed::{eventually, length};

use cells::{BeforeStep, HookedClient, Model, ledger};

const PARTITIONS: i32 = 6;
/// Session timeout and poll interval after which a member is removed; the smallest that librdkafka accepts.
const MEMBER_TIMEOUT_MS: &str = "6000";

static WORKLOAD: Workload = Workload::new(|| traffic::redelivered(&traffic::records(21, 1200), 21));

/// The state that the workers share.
struct Fixture {
    site: Site,
    config: Config,
    store: Arc<Mutex<Model>>,
    seed: AtomicU32,
}

/// One worker.
struct Member {
    shutdown: Shutdown,
    health: Arc<Health>,
    reading: JoinHandle<Result<u64, IngestError>>,
    working: JoinHandle<Result<(), StoreError>>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let site = traffic::site(name, PARTITIONS);
        let flags = [
            ("ingest.batch_records_max", "30"),
            ("kafka.librdkafka.session.timeout.ms", MEMBER_TIMEOUT_MS),
            ("kafka.librdkafka.max.poll.interval.ms", MEMBER_TIMEOUT_MS),
            ("kafka.librdkafka.heartbeat.interval.ms", "500"),
        ];
        let site = flags.iter().fold(site, |site, (key, value)| site.set(key, value));
        let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let file = site.config();
        let sources = config::Sources { file: Some(&file), environment: Vec::new(), flags };
        let config = config::load(&sources).expect("the settings are valid");
        Self { site, config, store: Arc::default(), seed: AtomicU32::new(1) }
    }

    /// Produces each record to a random partition, so that several workers handle facts of one device at the same time.
    fn produce(&self, records: &[Record]) {
        let mut rng = fastrand::Rng::with_seed(records.len() as u64);
        let mut message = |record: &Record| Message {
            partition: Some(rng.i32(0..PARTITIONS)),
            ..record.message()
        };
        let topics = &self.site.topics;
        Kafka::shared()
            .produce_all(records.iter().map(|record| (record.topic(topics), message(record))));
    }

    /// Starts a member with random delays between its steps.
    fn join(&self) -> Member {
        self.join_with(|| Ok(()))
    }

    /// Like [`Fixture::join`], but also calls `more` between the steps.
    fn join_with(
        &self,
        mut more: impl FnMut() -> Result<(), StoreError> + Send + 'static,
    ) -> Member {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let mut rng = fastrand::Rng::with_seed(u64::from(seed));
        let between = move || {
            if rng.u32(..200) == 0 {
                thread::sleep(Duration::from_millis(rng.u64(..30)));
            }
            more()
        };
        self.start(Box::new(between))
    }

    fn start(&self, before_step: BeforeStep) -> Member {
        let (batches, batches_in) = sync_channel(2);
        let (committed, committed_in) = channel();
        let (shutdown, health) = (Shutdown::default(), Arc::new(Health::default()));
        let (stop, state, timing) = (shutdown.clone(), health.clone(), ingest::Timing::default());
        let reading = ingest::join(&self.config, batches, committed_in, stop, state, timing);
        let client = HookedClient::new(&self.store, before_step);
        let mut worker = Worker::new(ledger(client), Arc::clone(&self.config.policy));
        let working = thread::spawn(move || {
            for ingest::Batch { facts, progress, .. } in batches_in {
                let positions = progress.positions.clone();
                worker.process(worker::Batch { facts, progress })?;
                // The receiver is gone once reading has ended.
                let _ = committed.send(positions);
            }
            Ok(())
        });
        Member { shutdown, health, reading: reading.expect("the settings are valid"), working }
    }

    /// Waits until the group's offsets are at the end of all partitions.
    #[track_caller]
    fn await_all_read(&self) {
        Kafka::shared().await_committed(&self.config.kafka.group, &self.site.topics.all());
    }

    /// Copies the model into an embedded store and downloads its rows with the command.
    fn exports(self) -> Exports {
        let model = self.store.lock().expect("no worker panics");
        let rows = model.rows();
        let mut writes = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            let view = RowView::decode(&value).expect("the row can be decoded");
            let row = row(&key, &view).expect("the props can be decoded");
            let key = fact_key(row.event_type.family(), row.pid, &row.event_id);
            let record = model.record(&key).expect("every row has a fact record");
            writes.push(DecisionWrite { key, record, row, replaced: None });
        }
        let mut disk =
            Embedded::open(&self.config.store, &self.config.policy).expect("the store opens");
        disk.commit(writes, &Progress::default()).expect("the rows are committed");
        drop(disk);
        by_command(&self.site)
    }
}

impl Member {
    fn await_assigned(&self) {
        // The member may have ended already.
        eventually("the group assigns partitions", || {
            let is_assigned = self.health.is_assigned() || self.reading.is_finished();
            is_assigned.then_some(()).ok_or("none yet")
        });
    }

    /// Shuts down like SIGTERM.
    fn leave(self) {
        self.shutdown.request();
        self.reading
            .join()
            .expect("the thread does not panic")
            .expect("reading ends without an error");
        self.working.join().expect("the thread does not panic").expect("the store does not fail");
    }
}

#[test]
fn workers_join_and_leave_under_load() {
    let fixture = Fixture::new("group.moving");
    let mut members = vec![fixture.join()];
    for (round, portion) in traffic::portions(WORKLOAD.records(), 6).enumerate() {
        fixture.produce(portion);
        members.push(fixture.join());
        members.last().expect("a member has joined").await_assigned();
        if round % 2 == 1 {
            members.remove(0).leave();
        }
        if round == 3 {
            // All leave at once.
            members.drain(..).for_each(Member::leave);
            members.push(fixture.join());
        }
    }
    fixture.await_all_read();
    members.into_iter().for_each(Member::leave);
    check_equal(&fixture.exports(), WORKLOAD.expected());
}

#[test]
fn rows_are_complete_after_workers_crash_between_writes() {
    let fixture = Fixture::new("group.ending");
    let mut rng = fastrand::Rng::with_seed(5);
    for (life, portion) in traffic::portions(WORKLOAD.records(), 8).enumerate() {
        let mut steps_remaining = rng.u32(10..400);
        let crash = || StoreError::Corrupt { what: "the process ends here".into() };
        let crashing = fixture.join_with(move || {
            steps_remaining = steps_remaining.saturating_sub(1);
            if steps_remaining == 0 { Err(crash()) } else { Ok(()) }
        });
        let other = (life % 2 == 0).then(|| fixture.join());
        crashing.await_assigned();
        fixture.produce(portion);
        let produced = Instant::now();
        eventually("the worker crashes", || {
            if crashing.working.is_finished() {
                return Ok(());
            }
            // The other member may have read everything.
            if produced.elapsed() > Duration::from_secs(10) {
                fixture.produce(portion);
            }
            Err("still running")
        });
        assert!(
            crashing.working.join().expect("the thread does not panic").is_err(),
            "no crash in life {life}"
        );
        // Reading ends without a last offset commit, because no batch is received any more.
        crashing.shutdown.request();
        let _ = crashing.reading.join().expect("the thread does not panic");
        other.into_iter().for_each(Member::leave);
    }
    let last = fixture.join();
    fixture.await_all_read();
    last.leave();
    check_equal(&fixture.exports(), WORKLOAD.expected());
}

/// A worker stalls in the middle of a batch for longer than the session timeout. Another worker takes over its
/// partitions and reads them to the end; then the stalled worker continues its writes.
#[test]
fn a_stalled_worker_that_resumes_does_not_change_rows() {
    for moment in length(&[1_000][..], &[300, 1_000, 3_000]) {
        let moment = *moment;
        let fixture = Fixture::new(&format!("group.late.{moment}"));
        fixture.produce(WORKLOAD.records());
        let (stall, has_stalled) = sync_channel(1);
        let (resume, resumed) = channel::<()>();
        let (mut steps, resumed) = (0, Mutex::new(resumed));
        let stalled = fixture.join_with(move || {
            steps += 1;
            if steps == moment {
                stall.send(()).expect("the test waits");
                resumed
                    .lock()
                    .expect("the lock is not poisoned")
                    .recv()
                    .expect("the test continues");
            }
            Ok(())
        });
        has_stalled.recv_timeout(testbed::DEADLINE).expect("the worker reaches this step");
        let successor = fixture.join();
        // The stalled worker commits no more offsets, so the successor reads its uncommitted records again.
        fixture.await_all_read();
        resume.send(()).expect("the worker is stalled");
        stalled.leave();
        successor.leave();
        check_equal(&fixture.exports(), WORKLOAD.expected());
    }
}
