//! The metrics of this crate.
//!
//! A batch is counted after its commit. So a record that is read again after a crash is counted once, and read =
//! accepted + redelivered + dead-lettered + empty holds for every topic at any time.

use std::sync::Arc;

use arc_swap::ArcSwap;
use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use config::Config;
use jiff::Timestamp;
use metrics::{Counter, Gauge, counter, gauge};

use super::health::Health;
use super::value_counts::{self, ValueCounts};
use crate::consumer::read::batch::Intake;
use crate::decode::ErrorCode;
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};

config::describe_metrics! {
    /// Records read from Kafka.
    describe_counter READ = "adtrail_ingest_read_total";
    /// Bytes of the values of records read from Kafka.
    describe_counter BYTES = "adtrail_ingest_bytes_total";
    /// Records read without a value.
    describe_counter EMPTY = "adtrail_ingest_empty_total";
    /// Records whose broker timestamp is so far before the low watermark that state which they need may have expired.
    describe_counter LATE = "adtrail_ingest_late_records_total";
    /// Records on another partition than most records of their app, while both partitions are in use.
    describe_counter KEY_MISMATCHES = "adtrail_ingest_key_partition_mismatch_total";
    /// Invalid records that were produced to the dead-letter topic, by error code.
    describe_counter DEAD_LETTERED = "adtrail_ingest_dead_lettered_total";
    /// Records in Kafka that are not committed yet.
    describe_gauge LAG_MESSAGES = "adtrail_ingest_lag_messages";
    /// Time since the broker timestamp of the last record read of the partition furthest behind; 0 if everything is
    /// committed.
    describe_gauge LAG_SECONDS = "adtrail_ingest_lag_seconds";
    /// Broker time up to which every partition is consumed and committed: state expires by it.
    describe_gauge CONSUMED_UNTIL = "adtrail_ingest_consumed_until_timestamp_seconds";
    /// When a batch was last committed, or nothing was left to commit.
    describe_gauge LAST_PROGRESS = "adtrail_ingest_last_progress_timestamp_seconds";
}

/// All metrics of the crate.
pub struct Metrics {
    policy: ArcSwap<Policy>,
    topics: PerTopic<TopicMetrics>,
    last_progress: Gauge,
    consumed_until: Gauge,
}

struct TopicMetrics {
    read: Counter,
    bytes: Counter,
    empty: Counter,
    late: Counter,
    key_mismatches: Counter,
    /// In the order of [`ErrorCode::ALL`].
    dead_lettered: [Counter; ErrorCode::ALL.len()],
    lag_messages: Gauge,
    lag_seconds: Gauge,
}

impl Metrics {
    /// Registers all metrics with the installed recorder, with value 0.
    pub fn new(config: &Config) -> Self {
        describe();
        value_counts::describe_metrics();
        let names = TopicNames::new(&config.kafka.topics);
        let topics = PerTopic::from_fn(|topic| TopicMetrics::new(names.of(topic)));
        let consumed_until = gauge!(CONSUMED_UNTIL);
        consumed_until.set(0.0);
        let (policy, last_progress) = (config.policy.clone().into(), gauge!(LAST_PROGRESS));
        Self { policy, topics, last_progress, consumed_until }
    }

    /// Takes the names of apps and channels from these settings.
    pub fn set_policy(&self, policy: Arc<Policy>) {
        self.policy.store(policy);
    }

    /// Counts a committed batch.
    pub fn committed(
        &self,
        intake: &Intake,
        values: &ValueCounts,
        consumed_until: Option<EventTime>,
        now: Timestamp,
    ) {
        values.count(&self.policy.load());
        for topic in TopicKind::ALL {
            let (metrics, intake) = (self.topics.of(topic), intake.of(topic));
            metrics.read.increment(intake.read);
            metrics.bytes.increment(intake.bytes);
            metrics.empty.increment(intake.empty);
            metrics.late.increment(intake.late);
            metrics.key_mismatches.increment(intake.key_mismatches);
            for code in ErrorCode::ALL {
                metrics.dead_lettered[code as usize].increment(intake.dead_lettered(code));
            }
        }
        if let Some(until) = consumed_until {
            self.consumed_until.set(until.millis() as f64 / 1e3);
        }
        self.last_progress.set(seconds(now));
    }

    /// Updates the gauges. Called before each scrape, or every second.
    pub fn observe(&self, health: &Health, now: Timestamp) {
        let mut is_behind = !health.is_ready();
        for topic in TopicKind::ALL {
            let metrics = self.topics.of(topic);
            let lag_messages = health.lag_messages(topic);
            is_behind |= lag_messages > 0;
            metrics.lag_messages.set(lag_messages as f64);
            let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
            metrics.lag_seconds.set(health.lag_ms(topic, now_ms) as f64 / 1e3);
        }
        if !is_behind {
            self.last_progress.set(seconds(now));
        }
    }
}

impl TopicMetrics {
    fn new(topic: &str) -> Self {
        let topic = topic.to_owned();
        let metrics = Self {
            read: counter!(READ, "topic" => topic.clone()),
            bytes: counter!(BYTES, "topic" => topic.clone()),
            empty: counter!(EMPTY, "topic" => topic.clone()),
            late: counter!(LATE, "topic" => topic.clone()),
            key_mismatches: counter!(KEY_MISMATCHES, "topic" => topic.clone()),
            dead_lettered: ErrorCode::ALL.map(
                |code| counter!(DEAD_LETTERED, "topic" => topic.clone(), "code" => code.name()),
            ),
            lag_messages: gauge!(LAG_MESSAGES, "topic" => topic.clone()),
            lag_seconds: gauge!(LAG_SECONDS, "topic" => topic),
        };
        let Self { read, bytes, empty, late, key_mismatches, .. } = &metrics;
        for counter in [read, bytes, empty, late, key_mismatches] {
            counter.increment(0);
        }
        metrics.dead_lettered.iter().for_each(|counter| counter.increment(0));
        metrics.lag_messages.set(0.0);
        metrics.lag_seconds.set(0.0);
        metrics
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::consumer::read::batch::{Accumulator, Limits, Source};
    use crate::kafka::partitions::Watermarks;

    const NOW_MS: i64 = 1_773_144_000_000;

    fn recorded(act: impl FnOnce(&Metrics)) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let config = config::parse("").expect("the defaults are valid");
        metrics::with_local_recorder(&recorder, || act(&Metrics::new(&config)));
        handle.render()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).expect("the time is in range")
    }

    #[track_caller]
    fn check(scrape: &str, series: &str, value: &str) {
        let line = format!("{series} {value}");
        assert!(scrape.lines().any(|found| found == line), "{line} is not in\n{scrape}");
    }

    /// Two empty records and a dead letter.
    fn intake() -> Intake {
        let limits =
            Limits { records_max: 9, bytes_max: 999, age_max: std::time::Duration::from_secs(1) };
        let source =
            |offset| Source { topic: TopicKind::Activations, partition: 0, offset, bytes: 7 };
        let mut batch = Accumulator::new(limits);
        batch.add_empty(source(0), Instant::now());
        batch.add_empty(source(1), Instant::now());
        batch.add_dead(source(2), ErrorCode::NotJson, Instant::now());
        batch.finish(&TopicNames::of_settings(), None).intake
    }

    #[test]
    fn every_series_exists_from_the_start() {
        let scrape = recorded(|_| {});
        for topic in ["adtrail.clicks", "adtrail.activations", "adtrail.effects"] {
            for name in [READ, BYTES, EMPTY, LATE, KEY_MISMATCHES, LAG_MESSAGES, LAG_SECONDS] {
                check(&scrape, &format!("{name}{{topic=\"{topic}\"}}"), "0");
            }
            for code in ErrorCode::ALL {
                let labels = format!("topic=\"{topic}\",code=\"{}\"", code.name());
                check(&scrape, &format!("{DEAD_LETTERED}{{{labels}}}"), "0");
            }
        }
        check(&scrape, LAST_PROGRESS, "0");
        check(&scrape, "# HELP adtrail_ingest_read_total", "Records read from Kafka.");
    }

    #[test]
    fn a_committed_batch_is_counted() {
        let scrape = recorded(|metrics| {
            metrics.committed(&intake(), &ValueCounts::default(), None, at(NOW_MS))
        });
        let labels = "{topic=\"adtrail.activations\"}";
        check(&scrape, &format!("{READ}{labels}"), "3");
        check(&scrape, &format!("{BYTES}{labels}"), "21");
        check(&scrape, &format!("{EMPTY}{labels}"), "2");
        let labels = "{topic=\"adtrail.activations\",code=\"not_json\"}";
        check(&scrape, &format!("{DEAD_LETTERED}{labels}"), "1");
        check(&scrape, LAST_PROGRESS, "1773144000");
    }

    #[track_caller]
    fn check_lag(high: i64, messages: &str, seconds: &str, progress: &str) {
        let health = Health::default();
        health.set_connected(true);
        health.set_assigned(true);
        health.set_watermarks(TopicKind::Activations, 0, Watermarks { low: 0, high });
        let until = EventTime::from_millis(NOW_MS - 60_000).expect("the time is in range");
        health.set_read_until(TopicKind::Activations, 0, until);
        let scrape = recorded(|metrics| {
            metrics.committed(&intake(), &ValueCounts::default(), None, at(NOW_MS));
            metrics.observe(&health, at(NOW_MS + 1_000));
        });
        let labels = "{topic=\"adtrail.activations\"}";
        check(&scrape, &format!("{LAG_MESSAGES}{labels}"), messages);
        check(&scrape, &format!("{LAG_SECONDS}{labels}"), seconds);
        check(&scrape, LAST_PROGRESS, progress);
    }

    #[test]
    fn lag_is_0_while_everything_is_committed() {
        check_lag(5, "5", "61", "1773144000");
        check_lag(0, "0", "0", "1773144001");
    }
}
