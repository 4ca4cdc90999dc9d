//! How long facts are needed (the contract's section 7).
//!
//! A message is a fact only if the broker took it at most the horizon after the fact's time. So
//! once every partition has been consumed up to some broker time, no older fact can come any
//! more, what is decided about older activations is final, and whatever these alone would need
//! can go.

use crate::candidate::{self, Tier};
use crate::event::{EventTime, Family, TouchKind};
use crate::policy::{AppPolicy, LOOKBACK_MAX_MS, Policy};

/// How far the broker timestamps of one partition may be out of order without being noticed:
/// producers stamp records, and send them a little later.
pub const DISORDER_MS: u64 = 10 * 60_000;

/// How long after their time the facts of one app are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    touch_ms: u64,
    activation_ms: u64,
    effect_ms: u64,
    /// After a fact's time it may come so late.
    late_ms: u64,
}

impl Needed {
    /// `late_ms` is the horizon of the app, or what stands for it where that is off.
    pub fn new(policy: &Policy, app: &AppPolicy, late_ms: u64) -> Self {
        let kinds = [TouchKind::Click, TouchKind::Impression];
        let tiers = kinds.into_iter().flat_map(|kind| [false, true].map(|is| Tier::of(kind, is)));
        let windows = tiers.map(|tier| candidate::window_max_ms(policy, app, tier, false));
        let counts = app.fraud.clicks_per_device_max > 0;
        let counted = counts.then(|| candidate::counted_max_ms(policy, app));
        let touch_ms = windows.chain(counted).max().unwrap_or(0);
        Self {
            touch_ms,
            // An effect at the end of the window of a reinstall can carry the install's credit.
            activation_ms: app
                .effect_window_ms
                .saturating_add(app.reattribution_window_ms)
                .saturating_add(app.clock_skew_ms),
            effect_ms: app.clock_skew_ms,
            late_ms: late_ms.saturating_add(DISORDER_MS),
        }
    }

    /// The time of the oldest fact of a family that is still needed once everything is consumed
    /// up to a broker time. Only touches have a lookback.
    pub fn oldest(
        &self,
        family: Family,
        lookback_ms: Option<u64>,
        consumed_until: EventTime,
    ) -> EventTime {
        let needed_ms = match family {
            Family::Touch => lookback_ms.map_or(0, |ms| ms.min(LOOKBACK_MAX_MS)).max(self.touch_ms),
            Family::Activation => self.activation_ms,
            Family::Effect => self.effect_ms,
        };
        consumed_until.minus(needed_ms.saturating_add(self.late_ms))
    }
}

/// The time before which touches have expired that an activation of this time could have been
/// credited with; `None` while all are kept.
pub fn expired_before(
    policy: &Policy,
    app: &AppPolicy,
    activation_time: EventTime,
    consumed_until: Option<EventTime>,
) -> Option<EventTime> {
    let needed = Needed::new(policy, app, app.correction_horizon_ms?);
    let oldest = needed.oldest(Family::Touch, None, consumed_until?);
    Some(oldest).filter(|oldest| *oldest > activation_time.minus(needed.touch_ms))
}

/// The time of the oldest activation that a fact to come can change; what is decided about older
/// ones stands, and with it what these were decided from may be gone.
pub fn changeable_from(app: &AppPolicy, consumed_until: Option<EventTime>) -> EventTime {
    match (app.correction_horizon_ms, consumed_until) {
        (Some(horizon_ms), Some(until)) => until.minus(horizon_ms.saturating_add(DISORDER_MS)),
        _ => EventTime::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;
    use crate::policy::DAY_MS;

    const NOW: u64 = 1_000 * DAY_MS;

    #[track_caller]
    fn check(app: &AppPolicy, family: Family, lookback_ms: Option<u64>, expected_ms: u64) {
        let policy = Policy::new(vec![app.clone()], vec![]);
        let needed = Needed::new(&policy, app, app.correction_horizon_ms.unwrap());
        let oldest = needed.oldest(family, lookback_ms, EventTime::default().plus(NOW));
        assert_eq!(NOW - oldest.millis(), expected_ms + DISORDER_MS);
    }

    #[test]
    fn window_and_horizon() {
        let app = AppPolicy::new(Pid(1), "a");
        check(&app, Family::Touch, None, 14 * DAY_MS);
        check(&app, Family::Touch, Some(0), 14 * DAY_MS);
        check(&app, Family::Touch, Some(30 * DAY_MS), 37 * DAY_MS);
        check(&app, Family::Touch, Some(u64::MAX), 97 * DAY_MS);
        check(&app, Family::Activation, None, (400 + 90 + 7) * DAY_MS + 5 * 60_000);
        check(&app, Family::Effect, None, 7 * DAY_MS + 5 * 60_000);
    }

    #[test]
    fn clicks_that_count_are_needed_as_long_as_any_candidate() {
        let mut app = AppPolicy::new(Pid(1), "a");
        app.fraud.clicks_per_device_max = 3;
        check(&app, Family::Touch, None, (90 + 1 + 7) * DAY_MS);
        app.windows.impression_ms = 200 * DAY_MS;
        check(&app, Family::Touch, None, (200 + 7) * DAY_MS);
    }

    #[track_caller]
    fn check_expired(age_ms: u64, expected_age_ms: Option<u64>) {
        let app = AppPolicy::new(Pid(1), "a");
        let policy = Policy::new(vec![app.clone()], vec![]);
        let now = EventTime::default().plus(NOW);
        let found = expired_before(&policy, &app, now.minus(age_ms), Some(now));
        assert_eq!(found, expected_age_ms.map(|ms| now.minus(ms + DISORDER_MS)));
        assert_eq!(expired_before(&policy, &app, now.minus(age_ms), None), None);
    }

    #[test]
    fn touches_of_an_activation_are_all_kept_until_the_horizon() {
        check_expired(0, None);
        check_expired(7 * DAY_MS + DISORDER_MS, None);
        check_expired(7 * DAY_MS + DISORDER_MS + 1, Some(14 * DAY_MS));
    }

    #[test]
    fn what_is_decided_is_final_after_the_horizon() {
        let mut app = AppPolicy::new(Pid(1), "a");
        let until = EventTime::default().plus(NOW);
        let expected = NOW - 7 * DAY_MS - DISORDER_MS;
        assert_eq!(changeable_from(&app, Some(until)).millis(), expected);
        assert_eq!(changeable_from(&app, None), EventTime::default());
        app.correction_horizon_ms = None;
        assert_eq!(changeable_from(&app, Some(until)), EventTime::default());
    }
}
