//! Notifications to systemd (`Type=notify`): readiness, a status line, and a watchdog that the attribution loop feeds.
//! See sd_notify(3). Without `NOTIFY_SOCKET` nothing is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ingest::{Health, TopicKind};
use jiff::Timestamp;
use sd_notify::NotifyState;

use super::loop_progress::{LoopProgress, ProgressWatch};
use super::readiness::Readiness;

const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// How often the watchdog is fed in the time after which systemd ends the process.
const WATCHDOG_BEATS: u32 = 3;

/// True once systemd knows that the process is ready.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Runs a reload of the settings between the notifications of its start and its end. Before the process is ready none
/// is sent, since the last one says that it is.
pub fn during_reload<T>(reload: impl FnOnce() -> T) -> T {
    let is_ready = IS_READY.load(Ordering::Relaxed);
    if is_ready && let Ok(now) = NotifyState::monotonic_usec_now() {
        // An error is logged with the next status.
        let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
    }
    let outcome = reload();
    if is_ready {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }
    outcome
}

/// Reports what the process waits for, before it has a [`Notifier`].
pub fn waits_for(missing: &str) {
    // An error is logged with the first status of the notifier.
    let _ = sd_notify::notify(&[NotifyState::Status(missing)]);
}

/// What the notifications of a process depend on.
pub struct Observed {
    pub readiness: Readiness,
    /// `None` in a process that does not attribute.
    pub attribution: Option<ObservedAttribution>,
}

pub struct ObservedAttribution {
    pub health: Arc<Health>,
    pub progress: Arc<LoopProgress>,
    /// Returns true while the loop has to wait for something that a restart does not mend, such as a full disk.
    pub is_held_up: Box<dyn Fn() -> bool>,
}

/// Sends the notifications. Is used by one thread.
pub struct Notifier(Option<State>);

struct State {
    readiness: Readiness,
    health: Option<Arc<Health>>,
    watchdog: Option<Watchdog>,
    is_ready: bool,
    status: String,
    status_interval: Duration,
    next_status: Instant,
    has_failed: bool,
}

struct Watchdog {
    interval: Duration,
    last_fed: Option<Instant>,
    /// `None` in a process that does not attribute.
    attribution: Option<WatchedLoop>,
}

struct WatchedLoop {
    watch: ProgressWatch,
    is_held_up: Box<dyn Fn() -> bool>,
}

impl WatchedLoop {
    fn is_alive(&mut self) -> bool {
        self.watch.has_progressed() || (self.is_held_up)()
    }
}

impl Notifier {
    pub fn new(observed: Observed, status_interval: Duration) -> Self {
        if std::env::var_os(SOCKET_VARIABLE).is_none() {
            return Self(None);
        }
        let Observed { readiness, attribution } = observed;
        let health = attribution.as_ref().map(|attribution| Arc::clone(&attribution.health));
        let watchdog =
            sd_notify::watchdog_enabled().map(|timeout| Watchdog::new(timeout, attribution));
        Self(Some(State {
            readiness,
            health,
            watchdog,
            is_ready: false,
            status: String::new(),
            status_interval,
            next_status: Instant::now(),
            has_failed: false,
        }))
    }

    /// Sends what is due. Must be called often.
    pub fn poll(&mut self) {
        if let Some(state) = &mut self.0 {
            state.poll(Instant::now());
        }
    }

    /// Announces that the process stops.
    pub fn stop(&mut self) {
        if let Some(state) = &mut self.0 {
            state.send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        }
    }
}

impl State {
    fn poll(&mut self, now: Instant) {
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.feed(now)) {
            self.send(&[NotifyState::Watchdog]);
        }
        if self.is_ready && now < self.next_status {
            return;
        }
        self.next_status = now + self.status_interval;
        let readiness = (self.readiness)();
        let is_first = readiness.is_ok() && !self.is_ready;
        let status = self.describe(readiness);
        if is_first {
            self.is_ready = true;
            IS_READY.store(true, Ordering::Relaxed);
            self.send(&[NotifyState::Ready, NotifyState::Status(&status)]);
        } else if status != self.status {
            self.send(&[NotifyState::Status(&status)]);
        }
        self.status = status;
    }

    fn describe(&self, readiness: Result<(), String>) -> String {
        match (readiness, &self.health) {
            // A status is one line.
            (Err(missing), _) => format!("not ready: {}", missing.replace('\n', " ")),
            (Ok(()), Some(health)) => format!("ready; {}", lag(health)),
            (Ok(()), None) => "ready".to_owned(),
        }
    }

    /// Sends a message. The service runs on if that fails: systemd then ends it if the unit demands notifications.
    fn send(&mut self, message: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(message)
            && !self.has_failed
        {
            self.has_failed = true;
            tracing::warn!(%error, "systemd cannot be notified: {SOCKET_VARIABLE} does not accept messages");
        }
    }
}

impl Watchdog {
    fn new(timeout: Duration, attribution: Option<ObservedAttribution>) -> Self {
        let interval = timeout / WATCHDOG_BEATS;
        let attribution =
            attribution.map(|ObservedAttribution { progress, is_held_up, .. }| WatchedLoop {
                watch: ProgressWatch::new(progress),
                is_held_up,
            });
        Self { interval, last_fed: None, attribution }
    }

    /// Returns true if the watchdog is to be fed now: it is due, and the loop has progressed since the last time.
    fn feed(&mut self, now: Instant) -> bool {
        let is_due = self.last_fed.is_none_or(|fed| now.duration_since(fed) >= self.interval);
        let is_fed = is_due && self.attribution.as_mut().is_none_or(WatchedLoop::is_alive);
        if is_fed {
            self.last_fed = Some(now);
        }
        is_fed
    }
}

/// Returns the lag of all topics together.
fn lag(health: &Health) -> String {
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let of_topic = |topic| (health.lag_messages(topic), health.lag_ms(topic, now_ms));
    together(&TopicKind::ALL.map(of_topic))
}

/// Describes lags in records and in milliseconds as one.
fn together(lags: &[(u64, u64)]) -> String {
    let records: u64 = lags.iter().map(|(records, _)| records).sum();
    let longest_ms = lags.iter().map(|(_, ms)| *ms).max().unwrap_or_default();
    format!("lag {records} records, {} s", longest_ms / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_loop_does_not_feed_the_watchdog_unless_it_is_held_up() {
        let progress = Arc::new(LoopProgress::default());
        let is_held_up = Arc::new(AtomicBool::new(false));
        let held_up = Arc::clone(&is_held_up);
        let attribution = ObservedAttribution {
            health: Arc::default(),
            progress: Arc::clone(&progress),
            is_held_up: Box::new(move || held_up.load(Ordering::Relaxed)),
        };
        let mut watchdog = Watchdog::new(Duration::from_secs(30), Some(attribution));
        let start = Instant::now();
        let mut feed = |second| watchdog.feed(start + Duration::from_secs(second));
        assert!(feed(0), "the loop waits for work");
        assert!(!feed(9), "it is not due");
        assert!(feed(10));
        progress.set_working();
        assert!(feed(20), "the work has begun since");
        assert!(!feed(30) && !feed(31), "the same work");
        is_held_up.store(true, Ordering::Relaxed);
        assert!(feed(32));
        is_held_up.store(false, Ordering::Relaxed);
        assert!(!feed(42));
        progress.set_waiting();
        assert!(feed(43), "at once, not at the next interval");
    }

    #[test]
    fn a_process_that_does_not_attribute_feeds_the_watchdog() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), None);
        let start = Instant::now();
        assert!(watchdog.feed(start));
        assert!(!watchdog.feed(start + Duration::from_secs(9)));
        assert!(watchdog.feed(start + Duration::from_secs(10)));
    }

    #[test]
    fn the_lag_is_the_sum_of_records_and_the_longest_time() {
        assert_eq!(lag(&Health::default()), "lag 0 records, 0 s");
        assert_eq!(together(&[(1, 2_500), (0, 0), (4, 1_000)]), "lag 5 records, 2 s");
    }
}
