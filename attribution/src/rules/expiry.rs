//! How long facts are needed (the contract's section 7).
//!
//! A message is a fact only if the broker took it at most the horizon after the fact's time. So
//! once every partition has been consumed up to some broker time, no older fact can come any
//! more, what is decided about older activations is final, and whatever these alone would need
//! can go.

use super::candidate::{self, Tier};
use super::policy::{AppPolicy, LOOKBACK_MAX_MS, Policy};
use crate::facts::event::{EventTime, Family, TouchKind};

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
        let counted = counts.then(|| candidate::click_cap_horizon_ms(policy, app));
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

    /// What has expired once everything is consumed up to a broker time. Where rows are kept for ever
    /// `rows_ms` is none.
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

    /// For whoever keeps it.
    pub fn to_ms(self) -> [u64; 4] {
        [self.touch_ms, self.activation_ms, self.effect_ms, self.late_ms]
    }

    pub fn from_ms([touch_ms, activation_ms, effect_ms, late_ms]: [u64; 4]) -> Self {
        Self { touch_ms, activation_ms, effect_ms, late_ms }
    }
}

/// How far the state of an app has expired; 1970 where it has not. What has stays so, whatever the
/// settings are later, as some of it may be gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryFloor {
    /// Facts of each family before its time have, but for touches with a lookback of their own.
    pub touches: EventTime,
    pub activations: EventTime,
    pub effects: EventTime,
    /// No fact of before this can come any more: what is decided about older activations stands. Touches
    /// have expired that are older by more than their lookback.
    pub late: EventTime,
    /// Rows before this are gone, and with them what is known of ids alone.
    pub rows: EventTime,
}

impl ExpiryFloor {
    /// As of [`Needed::oldest`].
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

    /// The time before which homes of a family are gone. Those of activations and effects last as long as
    /// rows do, however little depends on them: an id that returns is not a second event.
    pub fn oldest_record(&self, family: Family, lookback_ms: Option<u64>) -> EventTime {
        let oldest = self.oldest(family, lookback_ms);
        if family == Family::Touch { oldest } else { oldest.min(self.rows) }
    }

    /// What has expired by either: of touches with a lookback rather too much.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            touches: self.touches.max(other.touches),
            activations: self.activations.max(other.activations),
            effects: self.effects.max(other.effects),
            late: self.late.max(other.late),
            rows: self.rows.max(other.rows),
        }
    }

    /// Whether all of the other has.
    pub fn covers(&self, other: &Self) -> bool {
        // Between these the time goes back with the lookback, or stays.
        let kept_ms = |of: &Self| of.late.since(of.touches).unwrap_or(0);
        let lookbacks = [0, kept_ms(self), kept_ms(other), LOOKBACK_MAX_MS];
        let of_touches = |of: &Self, ms| of.oldest(Family::Touch, Some(ms));
        lookbacks.into_iter().all(|ms| of_touches(self, ms) >= of_touches(other, ms))
            && self.activations >= other.activations
            && self.effects >= other.effects
            && self.late >= other.late
            && self.rows >= other.rows
    }
}

/// The time before which touches have expired that an activation of this time could have been
/// credited with; `None` while all are kept. `floor` is what expired by settings of before.
pub fn expired_before(
    policy: &Policy,
    app: &AppPolicy,
    activation_time: EventTime,
    consumed_until: Option<EventTime>,
    floor: &ExpiryFloor,
) -> Option<EventTime> {
    let needed = Needed::new(policy, app, app.correction_horizon_ms.unwrap_or(0));
    let until = consumed_until.filter(|_| app.correction_horizon_ms.is_some());
    let own = until.map(|until| needed.oldest(Family::Touch, None, until));
    let oldest = own.unwrap_or_default().max(floor.touches);
    Some(oldest).filter(|oldest| *oldest > activation_time.minus(needed.touch_ms))
}

/// The time of the oldest activation that a fact to come can change; what is decided about older
/// ones stands, and with it what these were decided from may be gone. `floor` is what expired by settings
/// of before.
pub fn changeable_from(
    app: &AppPolicy,
    consumed_until: Option<EventTime>,
    floor: &ExpiryFloor,
) -> EventTime {
    let own = match (app.correction_horizon_ms, consumed_until) {
        (Some(horizon_ms), Some(until)) => until.minus(horizon_ms.saturating_add(DISORDER_MS)),
        _ => EventTime::default(),
    };
    own.max(floor.late)
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
        let nothing = ExpiryFloor::default();
        let before = |app: &AppPolicy, until: Option<EventTime>, floor: &ExpiryFloor| {
            expired_before(&policy, app, now.minus(age_ms), until, floor)
        };
        let found = before(&app, Some(now), &nothing);
        assert_eq!(found, expected_age_ms.map(|ms| now.minus(ms + DISORDER_MS)));
        assert_eq!(before(&app, None, &nothing), None);
        // What has expired stays so without a horizon too.
        let floor = Needed::new(&policy, &app, 7 * DAY_MS).expired(now, None);
        let app = AppPolicy { correction_horizon_ms: None, ..app.clone() };
        assert_eq!(before(&app, Some(now), &floor), found);
        assert_eq!(before(&app, Some(now), &nothing), None);
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
        let nothing = ExpiryFloor::default();
        assert_eq!(changeable_from(&app, Some(until), &nothing).millis(), expected);
        assert_eq!(changeable_from(&app, None, &nothing), EventTime::default());
        let policy = Policy::new(vec![app.clone()], vec![]);
        let floor = Needed::new(&policy, &app, 7 * DAY_MS).expired(until, None);
        app.correction_horizon_ms = None;
        assert_eq!(changeable_from(&app, Some(until), &nothing), EventTime::default());
        assert_eq!(changeable_from(&app, Some(until), &floor).millis(), expected, "it stays so");
    }

    /// Days that touches, activations, effects and rows are kept, and that facts may be late.
    fn expired([touches, activations, effects, rows, late]: [u64; 5]) -> ExpiryFloor {
        let needed = [touches, activations, effects, late].map(|days| days * DAY_MS);
        let until = EventTime::default().plus(NOW);
        Needed::from_ms(needed).expired(until, Some(rows * DAY_MS))
    }

    #[test]
    fn what_has_expired_by_lookbacks_is_as_it_was_needed() {
        let needed = Needed::from_ms([14, 500, 1, 7].map(|days| days * DAY_MS));
        let until = EventTime::default().plus(NOW);
        let expired = needed.expired(until, None);
        for lookback_ms in [None, Some(0), Some(14), Some(15), Some(90), Some(91), Some(4_000)] {
            let lookback_ms = lookback_ms.map(|days| days * DAY_MS);
            for family in Family::ALL {
                let own = expired.oldest(family, lookback_ms);
                assert_eq!(own, needed.oldest(family, lookback_ms, until));
            }
        }
    }

    #[track_caller]
    fn check_covers(one: [u64; 5], other: [u64; 5], expected: bool) {
        assert_eq!(expired(one).covers(&expired(other)), expected, "{one:?} {other:?}");
    }

    #[test]
    fn what_covers_has_expired_as_far_in_everything() {
        let days = [14, 500, 1, 400, 7];
        check_covers(days, days, true);
        check_covers([13, 499, 0, 399, 6], days, true);
        for place in 0..5 {
            let mut longer = [13, 499, 0, 399, 6];
            longer[place] = days[place] + 2;
            check_covers(longer, days, false);
        }
        // Of windows the longer, and of both together less: only lookbacks between tell them apart.
        check_covers([20, 500, 0, 400, 1], days, true);
        check_covers([22, 500, 0, 400, 1], days, false);
        check_covers([1, 500, 1, 400, 8], days, false);
        check_covers(days, [100, 600, 10, 400, 8], true);
    }
}
