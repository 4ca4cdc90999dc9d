//! Expiry never moves backwards, as compactions have removed an unknown part of the expired state.
//!
//! The store records for each app the settings by which its state expires. If later settings would retain more, the old
//! cutoffs stay as a floor until the new ones have passed them.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::rules::expiry::{DISORDER_MS, ExpiryFloor, Needed};

use crate::StoreError;
use crate::apps::record::CLOCK_OFF_MS;
use crate::expiry::{Expiry, Kept};
use crate::layout::codec::{Input, event_time};
use crate::layout::key;

/// The stored expiry of an app. Without a record nothing has expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryRecord {
    /// The settings with which the store was last opened; `None`: nothing expires.
    pub kept: Option<Kept>,
    /// The floor that remains from earlier settings.
    pub floor: ExpiryFloor,
}

pub type ExpiryRecords = BTreeMap<Pid, ExpiryRecord>;

/// Encodes the absence of a limit.
const NONE: u64 = u64::MAX;

impl ExpiryRecord {
    /// The record after a change to the settings `kept`, at the low watermark `until`.
    pub fn under(&self, kept: Option<Kept>, until: Option<EventTime>) -> Self {
        let (current, before) = (expired(kept, until), expired(self.kept, until));
        let mut floor = self.floor;
        if kept != self.kept && !current.covers(&before) {
            floor = floor.union(&before);
        }
        if current.covers(&floor) {
            floor = ExpiryFloor::default();
        }
        Self { kept, floor }
    }

    /// The record for a copy of the store: everything that has expired becomes the floor.
    pub fn for_copy(&self, until: Option<EventTime>) -> Self {
        let current = expired(self.kept, until);
        let floor = if current.covers(&self.floor) { current } else { current.union(&self.floor) };
        Self { kept: None, floor }
    }

    /// False for a damaged record, with a floor more than a day later than `now`.
    pub fn is_possible(&self, now: EventTime) -> bool {
        let ExpiryFloor { touches, activations, effects, late, rows } = self.floor;
        [touches, activations, effects, late, rows]
            .iter()
            .all(|time| *time <= now.plus(CLOCK_OFF_MS))
    }

    pub fn encode(&self) -> Vec<u8> {
        let kept = self.kept.map(|kept| (kept.needed.to_ms(), kept.retention_ms.unwrap_or(NONE)));
        let ([touches_ms, activations_ms, effects_ms, late_ms], rows_ms) =
            kept.unwrap_or(([NONE; 4], NONE));
        let ExpiryFloor { touches, activations, effects, late, rows } = self.floor;
        let times = [touches, activations, effects, late, rows].map(EventTime::millis);
        let limits = [touches_ms, activations_ms, effects_ms, late_ms, rows_ms];
        limits.iter().chain(&times).flat_map(|ms| ms.to_be_bytes()).collect()
    }

    /// `None` if the bytes are not a record.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut input = Input::new(value);
        let mut number = || input.u64().ok();
        let needed = [number()?, number()?, number()?, number()?];
        let rows_ms = number()?;
        let mut time = || event_time(number()?);
        let (touches, activations, effects) = (time()?, time()?, time()?);
        let floor = ExpiryFloor { touches, activations, effects, late: time()?, rows: time()? };
        input.end().ok()?;
        let [.., late_ms] = needed;
        let retention_ms = Some(rows_ms).filter(|ms| *ms != NONE);
        let kept = Kept { needed: Needed::from_ms(needed), retention_ms };
        Some(Self { kept: Some(kept).filter(|_| late_ms != NONE), floor })
    }
}

fn expired(kept: Option<Kept>, until: Option<EventTime>) -> ExpiryFloor {
    kept.zip(until).map(|(kept, until)| kept.expired(until)).unwrap_or_default()
}

/// Decodes a stored record and the pid of its key.
pub fn decode(pid: &[u8], value: &[u8], now: EventTime) -> Result<(Pid, ExpiryRecord), StoreError> {
    let damage = || StoreError::corrupt("the expiry record of an app");
    let pid = key::decode_pid(pid).ok_or_else(damage)?;
    let record = ExpiryRecord::decode(value).filter(|record| record.is_possible(now));
    Ok((pid, record.ok_or_else(damage)?))
}

/// [`ExpiryRecord::under`] for all apps of the settings and of the store.
pub fn under(stored: &ExpiryRecords, expiry: &Expiry, until: Option<EventTime>) -> ExpiryRecords {
    let pids: BTreeSet<Pid> = stored.keys().copied().chain(expiry.pids()).collect();
    let before = |pid| stored.get(&pid).copied().unwrap_or_default();
    pids.into_iter().map(|pid| (pid, before(pid).under(expiry.kept(pid), until))).collect()
}

/// An expiry floor that retains less state than the present settings would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedFloor {
    pub pid: Pid,
    /// The names of the settings that were shorter.
    pub settings: Vec<&'static str>,
    /// Older state counts as expired. The latest floor of all kinds of state.
    pub before: EventTime,
    /// The low watermark at which the present settings have passed the floor; `None`: never.
    pub ends: Option<EventTime>,
}

impl RetainedFloor {
    /// `None` if the present settings have passed the floor.
    pub fn of(pid: Pid, floor: &ExpiryFloor, kept: Option<Kept>, until: EventTime) -> Option<Self> {
        let current = expired(kept, Some(until));
        let kinds = [
            StateKind::Late,
            StateKind::Touches,
            StateKind::Activations,
            StateKind::Effects,
            StateKind::Rows,
        ];
        let is_ahead = |kind: &StateKind| kind.of(floor) > kind.of(&current);
        let kinds_ahead: Vec<StateKind> = kinds.into_iter().filter(is_ahead).collect();
        let ahead_ms = |kind: &StateKind| kind.of(floor).since(kind.of(&current)).unwrap_or(0);
        let late_ms = ahead_ms(&StateKind::Late);
        let mut settings: Vec<&str> = Vec::new();
        for kind in &kinds_ahead {
            // A longer horizon moves the cutoffs of all facts: their own settings are the cause only beyond that.
            let is_cause =
                matches!(kind, StateKind::Late | StateKind::Rows) || ahead_ms(kind) > late_ms;
            if is_cause {
                settings.push(kind.setting(floor));
            }
        }
        settings.dedup();
        let all_expire = kinds_ahead.iter().all(|kind| kind.of(&current) > EventTime::default());
        let longest_ms = kinds_ahead.iter().map(ahead_ms).max()?;
        let before = kinds_ahead.iter().map(|kind| kind.of(floor)).max()?;
        Some(Self { pid, settings, before, ends: all_expire.then(|| until.plus(longest_ms)) })
    }
}

/// A kind of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateKind {
    Late,
    Touches,
    Activations,
    Effects,
    Rows,
}

impl StateKind {
    fn of(self, expired: &ExpiryFloor) -> EventTime {
        match self {
            Self::Late => expired.late,
            Self::Touches => expired.oldest(Family::Touch, None),
            Self::Activations => expired.activations,
            Self::Effects => expired.effects,
            Self::Rows => expired.rows,
        }
    }

    /// The name of the setting by which it expires.
    fn setting(self, floor: &ExpiryFloor) -> &'static str {
        match self {
            // Without a horizon, facts are kept as long as rows.
            Self::Late if floor.late.plus(DISORDER_MS) == floor.rows => "store.retention",
            Self::Late => "correction_horizon",
            Self::Touches => "windows or clicks_per_device_max",
            Self::Activations => "effect_window or reattribution_window",
            Self::Effects => "clock_skew",
            Self::Rows => "store.retention",
        }
    }
}

#[cfg(test)]
mod tests {
    use attribution::rules::policy::DAY_MS;

    use super::*;

    fn day(day: u64) -> EventTime {
        EventTime::default().plus(day * DAY_MS)
    }

    /// In days: how long touches, activations and effects are kept, how late facts may be, how long rows are kept.
    fn kept(days: [u64; 4], rows: Option<u64>) -> Option<Kept> {
        let needed = Needed::from_ms(days.map(|days| days * DAY_MS));
        Some(Kept { needed, retention_ms: rows.map(|days| days * DAY_MS) })
    }

    fn week() -> Option<Kept> {
        kept([7, 490, 0, 7], Some(400))
    }

    #[test]
    fn unchanged_or_shorter_settings_leave_no_floor() {
        let record = ExpiryRecord::default().under(week(), Some(day(600)));
        assert_eq!(record, ExpiryRecord { kept: week(), floor: ExpiryFloor::default() });
        for shorter in [week(), kept([7, 490, 0, 6], Some(400)), kept([1, 1, 0, 7], Some(7))] {
            assert_eq!(record.under(shorter, Some(day(700))).floor, ExpiryFloor::default());
        }
        let unconsumed = record.under(kept([30, 490, 0, 30], None), None);
        assert_eq!(unconsumed.floor, ExpiryFloor::default(), "nothing was consumed");
    }

    #[test]
    fn the_floor_of_shorter_settings_stays_until_longer_ones_have_passed_it() {
        let longer = kept([7, 490, 0, 30], Some(400));
        let record =
            ExpiryRecord::default().under(week(), Some(day(600))).under(longer, Some(day(600)));
        assert_eq!(record.floor, week().unwrap().expired(day(600)));
        // The store is opened again with the same settings.
        assert_eq!(record.under(longer, Some(day(622))), record);
        assert_eq!(record.under(longer, Some(day(623))).floor, ExpiryFloor::default());
        // The app is removed from the settings and added again.
        let off = record.under(None, Some(day(610)));
        let floor = record.floor.union(&longer.unwrap().expired(day(610)));
        assert_eq!(off, ExpiryRecord { kept: None, floor });
        assert_eq!(off.under(longer, Some(day(611))).floor, floor);
    }

    #[track_caller]
    fn check(before: Option<Kept>, now: Option<Kept>, settings: &[&str], ends: Option<u64>) {
        let record =
            ExpiryRecord::default().under(before, Some(day(600))).under(now, Some(day(600)));
        let floor = RetainedFloor::of(Pid(1), &record.floor, now, day(600))
            .expect("the floor is in effect");
        assert_eq!(floor.settings, settings);
        assert_eq!(floor.ends, ends.map(day));
    }

    #[test]
    fn a_floor_names_the_settings_that_were_shorter() {
        let horizon = "correction_horizon";
        check(week(), kept([7, 490, 0, 30], Some(400)), &[horizon], Some(623));
        check(week(), None, &[horizon, "store.retention"], None);
        let windows = "windows or clicks_per_device_max";
        check(week(), kept([91, 490, 0, 7], Some(400)), &[windows], Some(684));
        check(week(), kept([91, 490, 0, 8], Some(400)), &[horizon, windows], Some(685));
        let effects = "effect_window or reattribution_window";
        check(week(), kept([7, 500, 0, 7], Some(400)), &[effects], Some(610));
        check(week(), kept([7, 490, 0, 7], Some(500)), &["store.retention"], Some(700));
        let off = |days| {
            let late_ms = days * DAY_MS + DISORDER_MS;
            let needed = Needed::from_ms([7 * DAY_MS, 490 * DAY_MS, 0, late_ms]);
            Some(Kept { needed, retention_ms: Some(days * DAY_MS) })
        };
        check(off(60), off(90), &["store.retention"], Some(630));
        let none = RetainedFloor::of(Pid(1), &ExpiryFloor::default(), week(), day(600));
        assert_eq!(none, None);
    }
}
