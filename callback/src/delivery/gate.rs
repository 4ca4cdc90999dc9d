//! Decides when a host may get a request: its rate, its pauses after failures, and those that it asks for.
//!
//! A pure state machine; times come from the caller.

use std::num::NonZeroU32;

use super::timing::Timing;

/// After this many failures one after another, the host gets a pause.
const FAILURES_MAX: u32 = 10;
/// The longest wait that a host may ask for. A mistake of its server must not make callbacks too old.
pub(super) const REST_MS_MAX: i64 = 60 * 60 * 1_000;

#[derive(Debug)]
pub(super) struct Gate {
    state: State,
    /// Not before, because the host has asked for it.
    resume_ms: i64,
    /// The time from which the rate allows the next request, in microseconds.
    next_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Requests are sent.
    Open { failures: u32 },
    /// None is sent until then.
    Paused { until_ms: i64, pause_ms: i64 },
    /// One is sent, since then, and decides.
    Probing { since_ms: i64, pause_ms: i64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// After this wait.
    Go { wait_ms: i64 },
    /// Not before this time.
    Later { at_ms: i64 },
}

impl Gate {
    pub fn new() -> Self {
        Self { state: State::Open { failures: 0 }, resume_ms: i64::MIN, next_us: i64::MIN }
    }

    /// Asks for a request. After `Go`, its outcome must be recorded.
    pub fn admit(&mut self, per_second_max: NonZeroU32, now_ms: i64, timing: &Timing) -> Admission {
        let interval_us = 1_000_000 / i64::from(per_second_max.get());
        self.forget_former_clock(interval_us, now_ms, timing);
        if self.resume_ms > now_ms {
            return Admission::Later { at_ms: self.resume_ms };
        }
        let wait_ms = self.rate_wait_ms(now_ms);
        if wait_ms > ms(timing.rate_wait_max) {
            return Admission::Later { at_ms: now_ms.saturating_add(wait_ms) };
        }
        match self.state {
            State::Open { .. } => {}
            State::Paused { until_ms, .. } if now_ms < until_ms => {
                return Admission::Later { at_ms: until_ms };
            }
            State::Paused { pause_ms, .. } => {
                self.state = State::Probing { since_ms: now_ms, pause_ms };
            }
            State::Probing { since_ms, pause_ms } => {
                // A probe that has not ended by then was abandoned.
                let end_ms = since_ms.saturating_add(ms(timing.lease));
                if now_ms < end_ms {
                    let at_ms = now_ms.saturating_add(ms(timing.poll_interval).max(1));
                    return Admission::Later { at_ms };
                }
                self.state = State::Probing { since_ms: now_ms, pause_ms };
            }
        }
        self.next_us = self.next_us.max(now_ms.saturating_mul(1_000)).saturating_add(interval_us);
        Admission::Go { wait_ms }
    }

    /// Forgets times that are further ahead than any that is set here: the clock was set back since.
    fn forget_former_clock(&mut self, interval_us: i64, now_ms: i64, timing: &Timing) {
        let rate_wait_ms_max = ms(timing.rate_wait_max).saturating_add(interval_us / 1_000);
        if self.rate_wait_ms(now_ms) > rate_wait_ms_max {
            self.next_us = i64::MIN;
        }
        if self.resume_ms > now_ms.saturating_add(REST_MS_MAX) {
            self.resume_ms = i64::MIN;
        }
        match &mut self.state {
            State::Open { .. } => {}
            State::Paused { until_ms, pause_ms } => {
                *until_ms = (*until_ms).min(now_ms.saturating_add(*pause_ms));
            }
            State::Probing { since_ms, .. } => *since_ms = (*since_ms).min(now_ms),
        }
    }

    /// Checks whether the host gets no requests, for another reason than its rate.
    pub fn is_closed(&self, now_ms: i64) -> bool {
        self.resume_ms > now_ms || !matches!(self.state, State::Open { .. })
    }

    fn rate_wait_ms(&self, now_ms: i64) -> i64 {
        let wait_us = self.next_us.saturating_sub(now_ms.saturating_mul(1_000));
        wait_us.max(0).div_euclid(1_000)
    }

    /// The host has answered: it works, whatever it says.
    pub fn answered(&mut self) {
        self.state = State::Open { failures: 0 };
    }

    /// The host has not answered, or only that it fails.
    pub fn failed(&mut self, now_ms: i64, timing: &Timing) {
        let (min_ms, max_ms) = (ms(timing.pause_min), ms(timing.pause_max));
        let pause =
            |pause_ms: i64| State::Paused { until_ms: now_ms.saturating_add(pause_ms), pause_ms };
        self.state = match self.state {
            State::Open { failures } if failures + 1 < FAILURES_MAX => {
                State::Open { failures: failures + 1 }
            }
            State::Open { .. } => pause(min_ms),
            // Requests that began before the pause.
            paused @ State::Paused { .. } => paused,
            State::Probing { pause_ms, .. } => pause(pause_ms.saturating_mul(2).min(max_ms)),
        };
    }

    /// The host has asked for no requests for some time, at most [`REST_MS_MAX`].
    pub fn rest(&mut self, now_ms: i64, wait_ms: i64) {
        self.resume_ms = self.resume_ms.max(now_ms.saturating_add(wait_ms));
    }
}

fn ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: NonZeroU32 = NonZeroU32::new(10).unwrap();
    const GO: Admission = Admission::Go { wait_ms: 0 };

    fn admit(gate: &mut Gate, now_ms: i64) -> Admission {
        gate.admit(RATE, now_ms, &Timing::default())
    }

    fn failing(now_ms: i64) -> Gate {
        let mut gate = Gate::new();
        for _ in 0..FAILURES_MAX {
            gate.failed(now_ms, &Timing::default());
        }
        gate
    }

    #[test]
    fn requests_are_spread_over_a_second() {
        let mut gate = Gate::new();
        let waits: Vec<_> = (0..4).map(|_| admit(&mut gate, 1_000)).collect();
        let expected = [0, 100, 200, 300].map(|wait_ms| Admission::Go { wait_ms });
        assert_eq!(waits, expected);
        assert_eq!(admit(&mut gate, 1_400), GO);
        assert_eq!(admit(&mut gate, 1_450), Admission::Go { wait_ms: 50 });
        assert_eq!(admit(&mut gate, 9_000), GO, "what was not used is not saved");
        assert_eq!(admit(&mut gate, 9_000), Admission::Go { wait_ms: 100 });
    }

    #[test]
    fn a_long_wait_is_postponed() {
        let mut gate = Gate::new();
        let admitted = (0..1_000).filter(|_| matches!(admit(&mut gate, 0), Admission::Go { .. }));
        assert_eq!(admitted.count(), 51);
        assert_eq!(admit(&mut gate, 0), Admission::Later { at_ms: 5_100 });
    }

    #[test]
    fn a_host_that_fails_gets_a_pause() {
        let mut gate = failing(1_000);
        assert_eq!(admit(&mut gate, 1_000), Admission::Later { at_ms: 11_000 });
        assert_eq!(admit(&mut gate, 10_999), Admission::Later { at_ms: 11_000 });
        assert_eq!(admit(&mut gate, 11_000), GO, "the probe");
        assert_eq!(admit(&mut gate, 11_100), Admission::Later { at_ms: 11_600 });
        gate.answered();
        assert_eq!(admit(&mut gate, 11_200), GO);
    }

    #[test]
    fn pauses_double() {
        let mut gate = failing(0);
        let mut now_ms = 0;
        for pause_ms in [10, 20, 40, 80, 160, 300, 300].map(|seconds| seconds * 1_000) {
            assert_eq!(admit(&mut gate, now_ms), Admission::Later { at_ms: now_ms + pause_ms });
            gate.failed(now_ms + 1, &Timing::default());
            now_ms += pause_ms;
            assert_eq!(admit(&mut gate, now_ms), GO);
            gate.failed(now_ms, &Timing::default());
        }
    }

    #[test]
    fn an_answer_between_failures_prevents_a_pause() {
        let mut gate = Gate::new();
        for _ in 0..5 {
            (0..FAILURES_MAX - 1).for_each(|_| gate.failed(0, &Timing::default()));
            assert!(matches!(gate.state, State::Open { .. }));
            gate.answered();
        }
    }

    #[test]
    fn a_lost_probe_is_replaced() {
        let mut gate = failing(0);
        assert_eq!(admit(&mut gate, 10_000), GO);
        assert_eq!(admit(&mut gate, 69_999), Admission::Later { at_ms: 70_499 });
        assert_eq!(admit(&mut gate, 70_000), GO);
    }

    #[test]
    fn a_host_that_fails_or_rests_is_closed() {
        let mut gate = Gate::new();
        while matches!(admit(&mut gate, 0), Admission::Go { .. }) {}
        assert!(!gate.is_closed(0), "it only has its rate");
        gate.rest(0, 4_000);
        assert!(gate.is_closed(3_999) && !gate.is_closed(4_000));
        let mut gate = failing(0);
        assert!(gate.is_closed(0));
        assert_eq!(admit(&mut gate, 10_000), GO);
        assert!(gate.is_closed(10_000), "the probe is in progress");
        gate.answered();
        assert!(!gate.is_closed(10_000));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing() {
        const BEFORE_MS: i64 = 24 * REST_MS_MAX;
        let mut busy = Gate::new();
        while matches!(admit(&mut busy, BEFORE_MS), Admission::Go { .. }) {}
        assert_eq!(admit(&mut busy, 0), GO);
        let mut resting = Gate::new();
        resting.rest(BEFORE_MS, REST_MS_MAX);
        assert_eq!(admit(&mut resting, 0), GO);
        let mut paused = failing(BEFORE_MS);
        assert_eq!(admit(&mut paused, 0), Admission::Later { at_ms: 10_000 });
        assert_eq!(admit(&mut paused, 10_000), GO);
        let mut probing = failing(BEFORE_MS);
        assert_eq!(admit(&mut probing, BEFORE_MS + 10_000), GO);
        assert_eq!(admit(&mut probing, 0), Admission::Later { at_ms: 500 });
        assert_eq!(admit(&mut probing, 60_000), GO);
    }

    #[test]
    fn a_host_may_ask_for_rest() {
        let mut gate = Gate::new();
        gate.rest(1_000, 4_000);
        gate.rest(1_000, 3_000);
        gate.answered();
        assert_eq!(admit(&mut gate, 4_999), Admission::Later { at_ms: 5_000 });
        assert_eq!(admit(&mut gate, 5_000), GO);
    }
}
