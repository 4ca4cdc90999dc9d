//! Several workers in one consumer group, over one store that they share: they come and go under
//! load, end between any two writes, and stand still until others have their partitions. The store is
//! the ledger of HBase over one in memory, with waits between its steps; Kafka and the group are real.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../store/tests/support/cells.rs"]
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
use testbed::exports::{Exports, Workload, check_equal};
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, Record, TO};
use testbed::{eventually, length};

use cells::{Between, Model, Visitor, ledger};

const PARTITIONS: i32 = 6;
/// A member that asks for nothing for so long is given up; it is the least that librdkafka takes.
const GIVEN_UP_AFTER_MS: &str = "6000";

static WORKLOAD: Workload = Workload::new(|| traffic::redelivered(&traffic::records(21, 1200), 21));

/// Workers, and what they share.
struct Bed {
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

impl Bed {
    fn new(name: &str) -> Self {
        let site = Site::new(Kafka::shared(), name, PARTITIONS, traffic::SETTINGS);
        let flags = [
            ("store.retention", "off"),
            ("ingest.batch_records_max", "30"),
            ("kafka.librdkafka.session.timeout.ms", GIVEN_UP_AFTER_MS),
            ("kafka.librdkafka.max.poll.interval.ms", GIVEN_UP_AFTER_MS),
            ("kafka.librdkafka.heartbeat.interval.ms", "500"),
        ];
        let site = flags.iter().fold(site, |site, (key, value)| site.set(key, value));
        let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let file = site.config();
        let sources = config::Sources { file: Some(&file), environment: Vec::new(), flags };
        let config = config::load(&sources).expect("valid settings");
        Self { site, config, store: Arc::default(), seed: AtomicU32::new(1) }
    }

    /// Each record in a partition that its key has no part in: facts of one device are in different
    /// hands at the same moment.
    fn produce(&self, records: &[Record]) {
        let mut rng = fastrand::Rng::with_seed(records.len() as u64);
        let mut message = |record: &Record| Message {
            partition: Some(rng.i32(0..PARTITIONS)),
            ..record.message()
        };
        let topics = &self.site.topics;
        Kafka::shared().produce_all(records.iter().map(|one| (one.topic(topics), message(one))));
    }

    /// A member whose steps are now and then waited before.
    fn join(&self) -> Member {
        self.join_with(|| Ok(()))
    }

    /// As [`Bed::join`], with what comes between its steps besides.
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

    fn start(&self, between: Between) -> Member {
        let (batches, batches_in) = sync_channel(2);
        let (committed, committed_in) = channel();
        let (shutdown, health) = (Shutdown::default(), Arc::new(Health::default()));
        let (stop, state, timing) = (shutdown.clone(), health.clone(), ingest::Timing::default());
        let reading = ingest::join(&self.config, batches, committed_in, stop, state, timing);
        let visitor = Visitor::new(&self.store, between);
        let mut worker = Worker::new(ledger(visitor), Arc::clone(&self.config.policy));
        let working = thread::spawn(move || {
            for ingest::Batch { facts, progress, .. } in batches_in {
                let positions = progress.positions.clone();
                worker.process(worker::Batch { facts, progress })?;
                // Nobody listens once reading has ended.
                let _ = committed.send(positions);
            }
            Ok(())
        });
        Member { shutdown, health, reading: reading.expect("valid settings"), working }
    }

    /// Until the group's positions are at the end of all partitions.
    #[track_caller]
    fn await_all_read(&self) {
        Kafka::shared().await_told(&self.config.kafka.group, &self.site.topics.all());
    }

    /// What the store holds, by the command.
    fn exports(self) -> Exports {
        let model = self.store.lock().expect("no worker panics");
        let rows = model.rows();
        let mut writes = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            let view = RowView::decode(&value).expect("a row that can be read");
            let row = row(&key, &view).expect("props that can be read");
            let key = fact_key(row.event_type.family(), row.pid, &row.event_id);
            let record = model.record(&key).expect("a row has a home");
            writes.push(DecisionWrite { key, record, row, replaced: None });
        }
        let mut disk = Embedded::open(&self.config.store, &self.config.policy).expect("a store");
        disk.commit(writes, &Progress::default()).expect("a commit");
        drop(disk);
        APPS.map(|app| self.site.download(app, FROM, TO, &[]))
    }
}

impl Member {
    fn await_assigned(&self) {
        // It may have ended already.
        eventually("the group gives partitions", || {
            let has_had = self.health.is_assigned() || self.reading.is_finished();
            has_had.then_some(()).ok_or("none yet")
        });
    }

    /// As SIGTERM does it.
    fn leave(self) {
        self.shutdown.request();
        self.reading.join().expect("no panic").expect("reading ends well");
        self.working.join().expect("no panic").expect("the store does not fail");
    }
}

#[test]
fn workers_come_and_go_under_load() {
    let bed = Bed::new("group.moving");
    let mut members = vec![bed.join()];
    for (round, portion) in traffic::portions(WORKLOAD.records(), 6).enumerate() {
        bed.produce(portion);
        members.push(bed.join());
        members.last().expect("one has joined").await_assigned();
        if round % 2 == 1 {
            members.remove(0).leave();
        }
        if round == 3 {
            // And all at once.
            members.drain(..).for_each(Member::leave);
            members.push(bed.join());
        }
    }
    bed.await_all_read();
    members.into_iter().for_each(Member::leave);
    check_equal(&bed.exports(), WORKLOAD.expected());
}

#[test]
fn workers_that_end_between_two_writes_leave_nothing_half_done() {
    let bed = Bed::new("group.ending");
    let mut rng = fastrand::Rng::with_seed(5);
    for (life, portion) in traffic::portions(WORKLOAD.records(), 8).enumerate() {
        let mut left = rng.u32(10..400);
        let over = || StoreError::Corrupt { what: "the process ends here".into() };
        let ending = bed.join_with(move || {
            left = left.saturating_sub(1);
            if left == 0 { Err(over()) } else { Ok(()) }
        });
        let other = (life % 2 == 0).then(|| bed.join());
        ending.await_assigned();
        bed.produce(portion);
        let produced = Instant::now();
        eventually("it ends", || {
            if ending.working.is_finished() {
                return Ok(());
            }
            // The other may have taken all that there was.
            if produced.elapsed() > Duration::from_secs(10) {
                bed.produce(portion);
            }
            Err("it works on")
        });
        assert!(ending.working.join().expect("no panic").is_err(), "it ends in life {life}");
        // Its batches are taken no more, which ends reading: it leaves the group untold.
        ending.shutdown.request();
        let _ = ending.reading.join().expect("no panic");
        other.into_iter().for_each(Member::leave);
    }
    let last = bed.join();
    bed.await_all_read();
    last.leave();
    check_equal(&bed.exports(), WORKLOAD.expected());
}

/// It stands still in the middle of a batch, longer than the group waits; another has its partitions
/// and reads them to the end; then it goes on, as if nothing had been.
#[test]
fn a_late_writer_does_no_harm() {
    for moment in length(&[1_000][..], &[300, 1_000, 3_000]) {
        let moment = *moment;
        let bed = Bed::new(&format!("group.late.{moment}"));
        bed.produce(WORKLOAD.records());
        let (stands, has_stood) = sync_channel(1);
        let (go_on, goes_on) = channel::<()>();
        let (mut steps, goes_on) = (0, Mutex::new(goes_on));
        let late = bed.join_with(move || {
            steps += 1;
            if steps == moment {
                stands.send(()).expect("the test waits");
                goes_on.lock().expect("one thread").recv().expect("the test goes on");
            }
            Ok(())
        });
        has_stood.recv_timeout(testbed::DEADLINE).expect("it gets so far");
        let successor = bed.join();
        // Of the late one nothing is told any more: the successor reads what it had in hand again.
        bed.await_all_read();
        go_on.send(()).expect("it stands still");
        late.leave();
        successor.leave();
        check_equal(&bed.exports(), WORKLOAD.expected());
    }
}
