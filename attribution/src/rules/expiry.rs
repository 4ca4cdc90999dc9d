//! How long facts are needed (section 7 of the contract).
//!
//! A message is accepted as a fact only if its broker timestamp is at most the correction horizon after its event
//! time. So once every partition is consumed up to a broker time, no fact can arrive that is older than this time by
//! more than the horizon; decisions on activations that old are final, and facts that only they need can be deleted.

use super::candidate::{self, Tier};
use super::policy::{AppPolicy, LOOKBACK_MAX_MS, Policy};
use crate::facts::event::{EventTime, Family};

/// Tolerance for out-of-order broker timestamps within a partition: a producer may send a record some time after it set
/// the timestamp.
pub const DISORDER_MS: u64 = 10 * 60_000;

/// How long after their event time the facts of one app are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    touch_ms: u64,
    activation_ms: u64,
    effect_ms: u64,
    /// How long after its event time a fact may arrive.
    late_ms: u64,
}

impl Needed {
    /// `late_ms` is the app's correction horizon, or a substitute if the horizon is off.
    pub fn new(policy: &Policy, app: &AppPolicy, late_ms: u64) -> Self {
        let window_ms = |tier| candidate::window_max_ms(policy, app, tier, false);
        let counts = app.fraud.clicks_per_device_max > 0;
        let click_cap = counts.then(|| candidate::click_cap_horizon_ms(policy, app));
        let touch_ms = Tier::ALL.map(window_ms).into_iter().chain(click_cap).max().unwrap_or(0);
        Self {
            touch_ms,
            // An effect at the end of a reinstall's effect window can carry the credit of the original install.
            activation_ms: app
                .effect_window_ms
                .saturating_add(app.reattribution_window_ms)
                .saturating_add(app.clock_skew_ms),
            effect_ms: app.clock_skew_ms,
            late_ms: late_ms.saturating_add(DISORDER_MS),
        }
    }

    /// Returns the time of the oldest fact of a family that is still needed once every partition is consumed up to
    /// `consumed_until`. Only touches have a lookback.
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

    /// Returns the expiry floor once every partition is consumed up to `consumed_until`. `rows_ms` is `None` if rows
    /// are kept forever.
    pub fn expired(&self, consumed_until: EventTime, rows_ms: Option<u64>) -> ExpiryFloor {
        let oldest = |family| self.oldest(family, None, consumed_until);
        ExpiryFloor {
            touches: oldest(Family::Touch),
            activations: oldest(Family::Activation),
            effects: oldest(Family::Effect),
            late: consumed_until.minus(self.late_ms),
            rows: rows_ms.map_or(EventTime::default(), |ms| consumed_until.minus(ms)),
        }
    }

    /// Returns the durations in the order in which a store saves them.
    pub fn to_ms(self) -> [u64; 4] {
        [self.touch_ms, self.activation_ms, self.effect_ms, self.late_ms]
    }

    pub fn from_ms([touch_ms, activation_ms, effect_ms, late_ms]: [u64; 4]) -> Self {
        Self { touch_ms, activation_ms, effect_ms, late_ms }
    }
}

/// How far the state of an app has expired; 1970 if nothing has. Expiry never moves backwards, whatever the later
/// settings are, because expired state may have been deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryFloor {
    /// Touches before this have expired, except those with a longer lookback of their own.
    pub touches: EventTime,
    pub activations: EventTime,
    pub effects: EventTime,
    /// No fact before this can arrive any more, so decisions on older activations are final. A touch with its own
    /// lookback expires once it is older than this by more than the lookback.
    pub late: EventTime,
    /// Rows before this are deleted, together with tombstones, which only keep an id known.
    pub rows: EventTime,
}

impl ExpiryFloor {
    /// Returns the time of the oldest fact of a family that has not expired, like [`Needed::oldest`].
    pub fn oldest(&self, family: Family, lookback_ms: Option<u64>) -> EventTime {
        match family {
            Family::Touch => {
                let lookback_ms = lookback_ms.map_or(0, |ms| ms.min(LOOKBACK_MAX_MS));
                self.touches.min(self.late.minus(lookback_ms))
            }
            Family::Activation => self.activations,
            Family::Effect => self.effects,
        }
    }

    /// Returns the time before which fact records of a family are deleted. Records of activations and effects are kept
    /// at least as long as rows, so that a repeated id does not become a second event.
    pub fn oldest_record(&self, family: Family, lookback_ms: Option<u64>) -> EventTime {
        let oldest = self.oldest(family, lookback_ms);
        if family == Family::Touch { oldest } else { oldest.min(self.rows) }
    }

    /// Returns a floor by which everything has expired that has expired by either floor, and possibly more touches with
    /// their own lookback.
    pub fn union(&self, other: &Self) -> Self {
        Self {
            touches: self.touches.max(other.touches),
            activations: self.activations.max(other.activations),
            effects: self.effects.max(other.effects),
            late: self.late.max(other.late),
            rows: self.rows.max(other.rows),
        }
    }

    /// Checks whether everything that has expired by `other` has also expired by this floor.
    pub fn covers(&self, other: &Self) -> bool {
        // Between these lookbacks the oldest time is either linear in the lookback or constant.
        let kept_ms = |floor: &Self| floor.late.since(floor.touches).unwrap_or(0);
        let lookbacks = [0, kept_ms(self), kept_ms(other), LOOKBACK_MAX_MS];
        let oldest_touch = |floor: &Self, ms| floor.oldest(Family::Touch, Some(ms));
        lookbacks.into_iter().all(|ms| oldest_touch(self, ms) >= oldest_touch(other, ms))
            && self.activations >= other.activations
            && self.effects >= other.effects
            && self.late >= other.late
            && self.rows >= other.rows
    }
}

/// Returns the time before which touches have expired, if the activation could have been credited to an expired touch;
/// else `None`. `floor` is the expiry by earlier settings.
pub fn expired_before(
    policy: &Policy,
    app: &AppPolicy,
    activation_time: EventTime,
    consumed_until: Option<EventTime>,
    floor: &ExpiryFloor,
) -> Option<EventTime> {
    let needed = Needed::new(policy, app, app.correction_horizon_ms.unwrap_or(0));
    let until = consumed_until.filter(|_| app.correction_horizon_ms.is_some());
    let by_settings = until.map(|until| needed.oldest(Family::Touch, None, until));
    let oldest = by_settings.unwrap_or_default().max(floor.touches);
    Some(oldest).filter(|oldest| *oldest > activation_time.minus(needed.touch_ms))
}

/// Returns the time of the oldest activation whose decision a future fact can change. Older decisions are final, and
/// the facts that they depend on may be deleted. `floor` is the expiry by earlier settings.
pub fn changeable_from(
    app: &AppPolicy,
    consumed_until: Option<EventTime>,
    floor: &ExpiryFloor,
) -> EventTime {
    let by_settings = match (app.correction_horizon_ms, consumed_until) {
        (Some(horizon_ms), Some(until)) => until.minus(horizon_ms.saturating_add(DISORDER_MS)),
        _ => EventTime::default(),
    };
    by_settings.max(floor.late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::Pid;
    use crate::rules::policy::DAY_MS;

    const NOW: u64 = 1_000 * DAY_MS;

    #[track_caller]
    fn check(app: &AppPolicy, family: Family, lookback_ms: Option<u64>, expected_ms: u64) {
        let policy = Policy::new(vec![app.clone()], vec![]);
        let needed = Needed::new(&policy, app, app.correction_horizon_ms.unwrap());
        let oldest = needed.oldest(family, lookback_ms, EventTime::default().plus(NOW));
        assert_eq!(NOW - oldest.millis(), expected_ms + DISORDER_MS);
    }

    #[test]
    fn facts_are_needed_for_their_window_plus_the_horizon() {
        let app = AppPolicy::new(Pid(1), "a");
        check(&app, Family::Touch, None, 14 * DAY_MS);
        check(&app, Family::Touch, Some(0), 14 * DAY_MS);
        check(&app, Family::Touch, Some(30 * DAY_MS), 37 * DAY_MS);
        check(&app, Family::Touch, Some(u64::MAX), 97 * DAY_MS);
        check(&app, Family::Activation, None, (400 + 90 + 7) * DAY_MS + 5 * 60_000);
        check(&app, Family::Effect, None, 7 * DAY_MS + 5 * 60_000);
    }

    #[test]
    fn counted_clicks_are_needed_as_long_as_any_candidate() {
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
        let nothing = ExpiryFloor::default();
        let expired = |app: &AppPolicy, until: Option<EventTime>, floor: &ExpiryFloor| {
            expired_before(&policy, app, now.minus(age_ms), until, floor)
        };
        let found = expired(&app, Some(now), &nothing);
        assert_eq!(found, expected_age_ms.map(|ms| now.minus(ms + DISORDER_MS)));
        assert_eq!(expired(&app, None, &nothing), None);
        // Expired state stays expired even if the horizon is turned off.
        let floor = Needed::new(&policy, &app, 7 * DAY_MS).expired(now, None);
        let app = AppPolicy { correction_horizon_ms: None, ..app.clone() };
        assert_eq!(expired(&app, Some(now), &floor), found);
        assert_eq!(expired(&app, Some(now), &nothing), None);
    }

    #[test]
    fn no_touch_of_an_activation_expires_before_the_horizon() {
        check_expired(0, None);
        check_expired(7 * DAY_MS + DISORDER_MS, None);
        check_expired(7 * DAY_MS + DISORDER_MS + 1, Some(14 * DAY_MS));
    }

    #[test]
    fn decisions_are_final_after_the_horizon() {
        let mut app = AppPolicy::new(Pid(1), "a");
        let until = EventTime::default().plus(NOW);
        let expected = NOW - 7 * DAY_MS - DISORDER_MS;
        let nothing = ExpiryFloor::default();
        assert_eq!(changeable_from(&app, Some(until), &nothing).millis(), expected);
        assert_eq!(changeable_from(&app, None, &nothing), EventTime::default());
        let policy = Policy::new(vec![app.clone()], vec![]);
        let floor = Needed::new(&policy, &app, 7 * DAY_MS).expired(until, None);
        app.correction_horizon_ms = None;
        assert_eq!(changeable_from(&app, Some(until), &nothing), EventTime::default());
        assert_eq!(
            changeable_from(&app, Some(until), &floor).millis(),
            expected,
            "the floor stays"
        );
    }

    /// Returns the floor if touches, activations, effects and rows are kept for these numbers of days, and facts may be
    /// late by the last number of days.
    fn expired([touches, activations, effects, rows, late]: [u64; 5]) -> ExpiryFloor {
        let needed = [touches, activations, effects, late].map(|days| days * DAY_MS);
        let until = EventTime::default().plus(NOW);
        Needed::from_ms(needed).expired(until, Some(rows * DAY_MS))
    }

    #[test]
    fn the_floor_agrees_with_needed_for_every_lookback() {
        let needed = Needed::from_ms([14, 500, 1, 7].map(|days| days * DAY_MS));
        let until = EventTime::default().plus(NOW);
        let expired = needed.expired(until, None);
        for lookback_ms in [None, Some(0), Some(14), Some(15), Some(90), Some(91), Some(4_000)] {
            let lookback_ms = lookback_ms.map(|days| days * DAY_MS);
            for family in Family::ALL {
                let oldest = expired.oldest(family, lookback_ms);
                assert_eq!(oldest, needed.oldest(family, lookback_ms, until));
            }
        }
    }

    #[track_caller]
    fn check_covers(a: [u64; 5], b: [u64; 5], expected: bool) {
        assert_eq!(expired(a).covers(&expired(b)), expected, "{a:?} {b:?}");
    }

    #[test]
    fn a_floor_covers_another_only_if_it_is_as_late_in_every_field() {
        let days = [14, 500, 1, 400, 7];
        check_covers(days, days, true);
        check_covers([13, 499, 0, 399, 6], days, true);
        for index in 0..5 {
            let mut longer = [13, 499, 0, 399, 6];
            longer[index] = days[index] + 2;
            check_covers(longer, days, false);
        }
        // A longer touch window but a shorter sum of window and lateness: they differ only for lookbacks in between.
        check_covers([20, 500, 0, 400, 1], days, true);
        check_covers([22, 500, 0, 400, 1], days, false);
        check_covers([1, 500, 1, 400, 8], days, false);
        check_covers(days, [100, 600, 10, 400, 8], true);
    }
}
