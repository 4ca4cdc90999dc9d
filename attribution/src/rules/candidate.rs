//! Candidates for an activation's credit (sections 3 and 4 of the contract).

use std::collections::BTreeMap;

use super::policy::{AppPolicy, LOOKBACK_MAX_MS, Origin, PROBABILISTIC_MAX_MS, Policy};
use super::row::{InstallType, MatchType, RejectReason};
use crate::facts::addresses::parse_address;
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, EventTime, Purpose, SpreadId, Touch, TouchKind, value};
use crate::facts::matches::{self, Matches};
use crate::facts::placeholders::without_macro;

/// Period before a click in which other clicks of the same device count against it.
pub const CLICK_COUNT_MS: u64 = super::policy::DAY_MS;

/// The name of `params` in which the collector writes how a signature was, and the value of a good one.
const SIGNATURE: &str = "signature";
const VALID: &str = "valid";

/// A touch that matches an activation within its window; fraud rules may still reject it.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub touch: &'a Touch,
    pub match_type: MatchType,
    pub tier: Tier,
}

/// The rank of a candidate by kind and match. A higher tier wins, whatever the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    ImpressionProbabilistic,
    ImpressionById,
    ClickProbabilistic,
    ClickById,
}

impl Tier {
    /// Lowest first.
    pub const ALL: [Self; 4] = [
        Self::ImpressionProbabilistic,
        Self::ImpressionById,
        Self::ClickProbabilistic,
        Self::ClickById,
    ];

    pub fn of(kind: TouchKind, is_probabilistic: bool) -> Self {
        match (kind, is_probabilistic) {
            (TouchKind::Click, false) => Self::ClickById,
            (TouchKind::Click, true) => Self::ClickProbabilistic,
            (TouchKind::Impression, false) => Self::ImpressionById,
            (TouchKind::Impression, true) => Self::ImpressionProbabilistic,
        }
    }
}

/// An activation whose decision is being made, with its settings and normalised ids.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub policy: &'a Policy,
    pub app: &'a AppPolicy,
    pub activation: &'a Activation,
    pub ids: &'a DeviceIds,
}

impl<'a> Subject<'a> {
    /// Returns the touch as a candidate if it matches within its window.
    pub fn candidate(
        &self,
        touch: &'a Touch,
        touch_ids: &DeviceIds,
        install_type: InstallType,
    ) -> Option<Candidate<'a>> {
        let age_ms = self.activation.time.since(touch.time).filter(|age_ms| *age_ms > 0)?;
        if install_type == InstallType::Reinstall && touch.purpose != Purpose::Retargeting {
            return None;
        }
        let Matches { by_id, probabilistic } = self.matches(touch, touch_ids);
        let candidate = |found: Option<MatchType>, is_probabilistic: bool| {
            let found = found?;
            (age_ms <= self.window(touch, is_probabilistic).ms).then(|| Candidate {
                touch,
                match_type: found,
                tier: Tier::of(touch.kind, is_probabilistic),
            })
        };
        candidate(by_id, false).or_else(|| candidate(probabilistic, true))
    }

    pub fn matches(&self, touch: &Touch, touch_ids: &DeviceIds) -> Matches {
        let probabilistic = self.app.probabilistic;
        matches::compare(touch, touch_ids, self.activation, self.ids, probabilistic)
    }

    pub fn window(&self, touch: &Touch, is_probabilistic: bool) -> Window {
        window(self.policy, self.app, touch, is_probabilistic)
    }

    /// Returns the first rule that rejects the candidate, if any. `clicks` must include all clicks that match the
    /// activation by id within [`CLICK_COUNT_MS`] before the candidate.
    pub fn reject_reason(
        &self,
        candidate: &Candidate<'_>,
        clicks: &ClickCounts<'_>,
    ) -> Option<RejectReason> {
        let touch = candidate.touch;
        let fraud = &self.app.fraud;
        if self.is_allowed(touch) {
            return None;
        }
        if is_blocked(self.app, touch) {
            return Some(RejectReason::Blocked);
        }
        if self.is_of_signed_channel(touch) && bad_signature(touch).is_some() {
            return Some(RejectReason::BadSignature);
        }
        if self.activation.install_begin_time.is_some_and(|begin| touch.time > begin) {
            return Some(RejectReason::ClickInjection);
        }
        let ctit_ms = self.activation.time.since(touch.time).unwrap_or(0);
        if ctit_ms < fraud.ctit_min_ms {
            return Some(RejectReason::CtitTooShort);
        }
        let has_too_many = touch.kind == TouchKind::Click
            && self.counts_clicks()
            && clicks.up_to(self.channel(touch.spreadid), touch.time)
                > self.app.fraud.clicks_per_device_max as usize;
        has_too_many.then_some(RejectReason::TooManyClicks)
    }

    fn is_of_signed_channel(&self, touch: &Touch) -> bool {
        self.channel(touch.spreadid).is_some_and(|channel| self.policy.is_signed_channel(channel))
    }

    /// Checks whether the touch is allow-listed, so that no rule rejects it.
    pub fn is_allowed(&self, touch: &Touch) -> bool {
        let (fraud, site) = (&self.app.fraud, without_macro(touch.site()));
        fraud.allow_sites.iter().any(|allowed| **allowed == *site)
            || self
                .channel(touch.spreadid)
                .is_some_and(|channel| fraud.allow_channels.iter().any(|id| **id == *channel))
    }

    /// Returns the time of the newest touch that can be accepted; `None` if none can.
    pub fn newest(&self) -> Option<EventTime> {
        let Activation { time, install_begin_time, .. } = *self.activation;
        let fraud = &self.app.fraud;
        // Allow-listed touches are rejected neither for a short click-to-install time nor for click injection.
        let is_strict = fraud.allow_sites.is_empty() && fraud.allow_channels.is_empty();
        let before_ms = if is_strict { fraud.ctit_min_ms.max(1) } else { 1 };
        let newest = time.millis().checked_sub(before_ms)?;
        let newest = EventTime::from_millis(i64::try_from(newest).ok()?)?;
        let begin = install_begin_time.filter(|_| is_strict);
        Some(begin.map_or(newest, |begin| newest.min(begin)))
    }

    pub fn counts_clicks(&self) -> bool {
        self.app.fraud.clicks_per_device_max > 0
    }

    /// Returns the campaign's channel; `None` if the campaign is not in the catalogue.
    pub fn channel(&self, spreadid: SpreadId) -> Option<&'a str> {
        self.policy.campaign(self.app.pid, spreadid).map(|campaign| &*campaign.channel)
    }
}

/// A click that matches the activation by id, as far as it counts against others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedClick<'a> {
    /// The channel of its campaign, as of [`Subject::channel`].
    pub channel: Option<&'a str>,
    pub time: EventTime,
}

/// The sorted times of the clicks that match an activation by id, by channel.
#[derive(Debug, Default)]
pub struct ClickCounts<'a> {
    times: BTreeMap<Option<&'a str>, Vec<EventTime>>,
}

impl<'a> ClickCounts<'a> {
    /// Counts the clicks among the touches, and those in `counted`; empty if the rules do not count clicks.
    pub fn new<'t>(
        subject: &Subject<'a>,
        touches: impl Iterator<Item = (&'t Touch, &'t DeviceIds)>,
        counted: impl Iterator<Item = CountedClick<'a>>,
    ) -> Self {
        let mut counts = Self::default();
        if subject.counts_clicks() {
            for CountedClick { channel, time } in counted {
                counts.times.entry(channel).or_default().push(time);
            }
            for (touch, ids) in touches {
                if touch.kind == TouchKind::Click && subject.matches(touch, ids).by_id.is_some() {
                    let channel = subject.channel(touch.spreadid);
                    counts.times.entry(channel).or_default().push(touch.time);
                }
            }
        }
        counts.times.values_mut().for_each(|times| times.sort_unstable());
        counts
    }

    /// Returns the number of clicks of a channel in the last [`CLICK_COUNT_MS`] up to and including this time.
    fn up_to(&self, channel: Option<&str>, time: EventTime) -> usize {
        let Some(times) = self.times.get(&channel) else { return 0 };
        let is_too_old =
            |click: &EventTime| time.since(*click).is_some_and(|ms| ms >= CLICK_COUNT_MS);
        times.partition_point(|click| *click <= time) - times.partition_point(is_too_old)
    }
}

/// The attribution window of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub ms: u64,
    /// The level of the settings that the window comes from; `None` if it is the touch's own lookback.
    pub origin: Option<Origin>,
}

fn window(policy: &Policy, app: &AppPolicy, touch: &Touch, is_probabilistic: bool) -> Window {
    let tier = Tier::of(touch.kind, is_probabilistic);
    // A probabilistic match ignores the touch's own lookback.
    if let Some(ms) = touch.lookback_ms.filter(|_| !is_probabilistic) {
        return Window { ms: ms.min(LOOKBACK_MAX_MS), origin: None };
    }
    let windows =
        policy.campaign(app.pid, touch.spreadid).map_or(&app.windows, |campaign| &campaign.windows);
    let [click, click_probabilistic, impression, impression_probabilistic] = windows.origins;
    let (ms, origin) = match tier {
        Tier::ClickById => (windows.click_ms, click),
        Tier::ClickProbabilistic => (windows.click_probabilistic_ms, click_probabilistic),
        Tier::ImpressionById => (windows.impression_ms, impression),
        Tier::ImpressionProbabilistic => {
            (windows.impression_probabilistic_ms, impression_probabilistic)
        }
    };
    let ms = if is_probabilistic { ms.min(PROBABILISTIC_MAX_MS) } else { ms };
    Window { ms, origin: Some(origin) }
}

/// Returns the longest window that touches of this tier can have: those with their own lookback if `has_lookback` is
/// true, otherwise those without.
pub fn window_max_ms(policy: &Policy, app: &AppPolicy, tier: Tier, has_lookback: bool) -> u64 {
    let widest = policy.widest(app);
    let lookback_or = |ms| if has_lookback { LOOKBACK_MAX_MS } else { ms };
    match tier {
        Tier::ClickById => lookback_or(widest.click_ms),
        Tier::ClickProbabilistic => widest.click_probabilistic_ms.min(PROBABILISTIC_MAX_MS),
        Tier::ImpressionById => lookback_or(widest.impression_ms),
        Tier::ImpressionProbabilistic => {
            widest.impression_probabilistic_ms.min(PROBABILISTIC_MAX_MS)
        }
    }
}

/// Returns the maximum age of a click that can affect a decision if clicks are counted: as a candidate, or by counting
/// against a candidate.
pub fn click_cap_horizon_ms(policy: &Policy, app: &AppPolicy) -> u64 {
    policy.widest(app).click_ms.max(LOOKBACK_MAX_MS) + CLICK_COUNT_MS
}

/// Checks whether the activation itself is block-listed.
pub fn is_activation_blocked(app: &AppPolicy, activation: &Activation, ids: &DeviceIds) -> bool {
    is_ip_blocked(app, &activation.device.ip) || is_device_blocked(app, ids)
}

/// Returns what is wrong with the signature of a touch; `None` if it is good or was not checked.
pub fn bad_signature(touch: &Touch) -> Option<&str> {
    Some(value(touch.params(), SIGNATURE)).filter(|outcome| !matches!(*outcome, "" | VALID))
}

fn is_blocked(app: &AppPolicy, touch: &Touch) -> bool {
    let site = without_macro(touch.site());
    is_ip_blocked(app, touch.device().ip)
        || app.fraud.block_sites.iter().any(|blocked| **blocked == *site)
        || (!app.fraud.block_devices.is_empty()
            && is_device_blocked(app, &DeviceIds::of_touch(touch.ids())))
}

fn is_ip_blocked(app: &AppPolicy, ip: &str) -> bool {
    !app.fraud.block_ips.is_empty()
        && parse_address(ip)
            .is_some_and(|ip| app.fraud.block_ips.iter().any(|range| range.contains(ip)))
}

fn is_device_blocked(app: &AppPolicy, ids: &DeviceIds) -> bool {
    app.fraud.block_devices.iter().any(|id| ids.contains(id))
}

/// Returns the time of the last activation that can be credited to the touch.
pub fn window_end(
    policy: &Policy,
    app: &AppPolicy,
    touch: &Touch,
    is_probabilistic: bool,
) -> EventTime {
    touch.time.plus(window(policy, app, touch, is_probabilistic).ms)
}

/// Returns the time of the last activation whose decision the touch can change by counting against another click;
/// `None` if it does not count.
pub fn click_cap_end(policy: &Policy, app: &AppPolicy, touch: &Touch) -> Option<EventTime> {
    let counts = app.fraud.clicks_per_device_max > 0 && touch.kind == TouchKind::Click;
    counts.then(|| touch.time.plus(click_cap_horizon_ms(policy, app)))
}
