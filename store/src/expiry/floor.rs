//! What has expired stays expired, whatever the settings are later: some of it is gone and some is not,
//! as compactions came by, and nothing may depend on that.
//!
//! With each app the settings are noted by which its state expires. Where others take their place by
//! which less of it would have expired, what had until then is held, until they have come as far.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::rules::expiry::{DISORDER_MS, ExpiryFloor, Needed};

use crate::StoreError;
use crate::apps::spread::CLOCK_OFF_MS;
use crate::expiry::{Expiry, Kept};
use crate::layout::codec::Input;

/// What a store notes of the state of an app; where there is nothing, nothing has expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryRecord {
    /// By the settings that it was opened with last; `None`: nothing expires.
    pub kept: Option<Kept>,
    /// By those before them.
    pub held: ExpiryFloor,
}

pub type ExpiryRecords = BTreeMap<Pid, ExpiryRecord>;

/// Stands for no limit.
const NONE: u64 = u64::MAX;

impl ExpiryRecord {
    /// What is to be noted once other settings take the place of these, where all is consumed up to a
    /// time.
    pub fn under(&self, kept: Option<Kept>, until: Option<EventTime>) -> Self {
        let (own, before) = (expired(kept, until), expired(self.kept, until));
        let mut held = self.held;
        if kept != self.kept && !own.covers(&before) {
            held = held.or(&before);
        }
        if own.covers(&held) {
            held = ExpiryFloor::default();
        }
        Self { kept, held }
    }

    /// All that has expired, for a store that this one is moved to.
    pub fn moved(&self, until: Option<EventTime>) -> Self {
        let own = expired(self.kept, until);
        let held = if own.covers(&self.held) { own } else { own.or(&self.held) };
        Self { kept: None, held }
    }

    /// Whether a store can have noted this, by now at the latest.
    pub fn is_possible(&self, now: EventTime) -> bool {
        let ExpiryFloor { touches, activations, effects, late, rows } = self.held;
        [touches, activations, effects, late, rows]
            .iter()
            .all(|time| *time <= now.plus(CLOCK_OFF_MS))
    }

    pub fn encode(&self) -> Vec<u8> {
        let kept = self.kept.map(|kept| (kept.needed.to_ms(), kept.retention_ms.unwrap_or(NONE)));
        let ([touches_ms, activations_ms, effects_ms, late_ms], rows_ms) =
            kept.unwrap_or(([NONE; 4], NONE));
        let ExpiryFloor { touches, activations, effects, late, rows } = self.held;
        let times = [touches, activations, effects, late, rows].map(EventTime::millis);
        let limits = [touches_ms, activations_ms, effects_ms, late_ms, rows_ms];
        limits.iter().chain(&times).flat_map(|ms| ms.to_be_bytes()).collect()
    }

    /// `None` if it is none.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut input = Input::new(value);
        let mut number = || input.u64().ok();
        let needed = [number()?, number()?, number()?, number()?];
        let rows_ms = number()?;
        let mut time = || number().map(|ms| i64::try_from(ms).unwrap_or(-1));
        let mut time = || time().and_then(EventTime::from_millis);
        let (touches, activations, effects) = (time()?, time()?, time()?);
        let held = ExpiryFloor { touches, activations, effects, late: time()?, rows: time()? };
        input.end().ok()?;
        let [.., late_ms] = needed;
        let retention_ms = Some(rows_ms).filter(|ms| *ms != NONE);
        let kept = Kept { needed: Needed::from_ms(needed), retention_ms };
        Some(Self { kept: Some(kept).filter(|_| late_ms != NONE), held })
    }
}

fn expired(kept: Option<Kept>, until: Option<EventTime>) -> ExpiryFloor {
    kept.zip(until).map(|(kept, until)| kept.expired(until)).unwrap_or_default()
}

/// What stands under the bytes of a pid.
pub fn decode(pid: &[u8], value: &[u8], now: EventTime) -> Result<(Pid, ExpiryRecord), StoreError> {
    let damage = || StoreError::corrupt("how far the state of an app has expired");
    let pid = pid.try_into().map(u32::from_be_bytes).map_err(|_| damage())?;
    let noted = ExpiryRecord::decode(value).filter(|noted| noted.is_possible(now));
    Ok((Pid(pid), noted.ok_or_else(damage)?))
}

/// What is to be noted of each app that is in the settings, or was.
pub fn under(noted: &ExpiryRecords, expiry: &Expiry, until: Option<EventTime>) -> ExpiryRecords {
    let pids: BTreeSet<Pid> = noted.keys().copied().chain(expiry.pids()).collect();
    let before = |pid| noted.get(&pid).copied().unwrap_or_default();
    pids.into_iter().map(|pid| (pid, before(pid).under(expiry.kept(pid), until))).collect()
}

/// State of an app that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedFloor {
    pub pid: Pid,
    /// The settings that were shorter.
    pub settings: Vec<&'static str>,
    /// What is older counts as expired: of the kinds of state the one that is held longest.
    pub before: EventTime,
    /// Once all is consumed up to this, it is as the settings say; `None`: never.
    pub ends: Option<EventTime>,
}

impl RetainedFloor {
    /// `None` where the settings have come as far.
    pub fn of(pid: Pid, held: &ExpiryFloor, kept: Option<Kept>, until: EventTime) -> Option<Self> {
        let own = expired(kept, Some(until));
        let parts = [Part::Late, Part::Touches, Part::Activations, Part::Effects, Part::Rows];
        let is_held = |part: &Part| part.of(held) > part.of(&own);
        let ahead: Vec<Part> = parts.into_iter().filter(is_held).collect();
        let by = |part: &Part| part.of(held).since(part.of(&own)).unwrap_or(0);
        let late = by(&Part::Late);
        let mut settings: Vec<&str> = Vec::new();
        for part in &ahead {
            // All go back with how late facts may be.
            let is_of_itself = matches!(part, Part::Late | Part::Rows) || by(part) > late;
            if is_of_itself {
                settings.push(part.setting(held));
            }
        }
        settings.dedup();
        let is_ever = ahead.iter().all(|part| part.of(&own) > EventTime::default());
        let longest = ahead.iter().map(by).max()?;
        let before = ahead.iter().map(|part| part.of(held)).max()?;
        Some(Self { pid, settings, before, ends: is_ever.then(|| until.plus(longest)) })
    }
}

/// A kind of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Late,
    Touches,
    Activations,
    Effects,
    Rows,
}

impl Part {
    fn of(self, expired: &ExpiryFloor) -> EventTime {
        match self {
            Self::Late => expired.late,
            Self::Touches => expired.oldest(Family::Touch, None),
            Self::Activations => expired.activations,
            Self::Effects => expired.effects,
            Self::Rows => expired.rows,
        }
    }

    /// What it expires by.
    fn setting(self, held: &ExpiryFloor) -> &'static str {
        match self {
            // Facts are kept as long as rows where the horizon is off.
            Self::Late if held.late.plus(DISORDER_MS) == held.rows => "store.retention",
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

    /// Days that touches, activations and effects are kept, that facts may be late, and rows are kept.
    fn kept(days: [u64; 4], rows: Option<u64>) -> Option<Kept> {
        let needed = Needed::from_ms(days.map(|days| days * DAY_MS));
        Some(Kept { needed, retention_ms: rows.map(|days| days * DAY_MS) })
    }

    fn week() -> Option<Kept> {
        kept([7, 490, 0, 7], Some(400))
    }

    #[test]
    fn what_is_written_reads_as_it_was() {
        let held = week().unwrap().expired(day(600));
        for kept in [None, week(), kept([1, 2, 3, 4], None)] {
            for held in [ExpiryFloor::default(), held] {
                let noted = ExpiryRecord { kept, held };
                let value = noted.encode();
                assert_eq!(ExpiryRecord::decode(&value), Some(noted));
                assert_eq!(ExpiryRecord::decode(&value[1..]), None);
                assert!(noted.is_possible(day(600)));
            }
        }
        assert!(!ExpiryRecord { kept: None, held }.is_possible(day(500)));
    }

    #[test]
    fn nothing_is_held_where_settings_stay_or_become_shorter() {
        let noted = ExpiryRecord::default().under(week(), Some(day(600)));
        assert_eq!(noted, ExpiryRecord { kept: week(), held: ExpiryFloor::default() });
        for shorter in [week(), kept([7, 490, 0, 6], Some(400)), kept([1, 1, 0, 7], Some(7))] {
            assert_eq!(noted.under(shorter, Some(day(700))).held, ExpiryFloor::default());
        }
        let fresh = noted.under(kept([30, 490, 0, 30], None), None);
        assert_eq!(fresh.held, ExpiryFloor::default(), "nothing was consumed");
    }

    #[test]
    fn what_expired_by_shorter_settings_is_held_until_these_come_as_far() {
        let longer = kept([7, 490, 0, 30], Some(400));
        let noted =
            ExpiryRecord::default().under(week(), Some(day(600))).under(longer, Some(day(600)));
        assert_eq!(noted.held, week().unwrap().expired(day(600)));
        // However often it is opened.
        assert_eq!(noted.under(longer, Some(day(622))), noted);
        assert_eq!(noted.under(longer, Some(day(623))).held, ExpiryFloor::default());
        // Gone from the settings, and back.
        let off = noted.under(None, Some(day(610)));
        let held = noted.held.or(&longer.unwrap().expired(day(610)));
        assert_eq!(off, ExpiryRecord { kept: None, held });
        assert_eq!(off.under(longer, Some(day(611))).held, held);
    }

    #[track_caller]
    fn check(before: Option<Kept>, now: Option<Kept>, settings: &[&str], ends: Option<u64>) {
        let noted =
            ExpiryRecord::default().under(before, Some(day(600))).under(now, Some(day(600)));
        let told = RetainedFloor::of(Pid(1), &noted.held, now, day(600)).expect("some is held");
        assert_eq!(told.settings, settings);
        assert_eq!(told.ends, ends.map(day));
    }

    #[test]
    fn the_settings_that_were_shorter_are_told_of() {
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
        let own = RetainedFloor::of(Pid(1), &ExpiryFloor::default(), week(), day(600));
        assert_eq!(own, None);
    }
}
