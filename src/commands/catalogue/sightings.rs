//! The campaigns that stored events name and the settings do not have, and what the events say of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use attribution::facts::event::{EventTime, Pid, SpreadId, Touch, TouchKind, value};
use attribution::facts::placeholders::without_macro;
use attribution::facts::printable::is_unprintable;
use attribution::rules::policy::Policy;
use attribution::rules::row::EventType;
use collect::REPORTED_CHANNEL;
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::summary_counts::{SummaryKey, whole_quarters};
use store::reader::{Reader, TouchScan};

/// The greatest number of campaigns that are listed: anyone can report clicks of any number.
const CAMPAIGNS_MAX: usize = 100_000;
/// The greatest length of a name or channel.
const TEXT_CHARS_MAX: usize = 200;
/// The param with the name of a campaign, as the macro of the network gave it.
const NAME: &str = "campaign_name";

/// The campaigns, by app and number.
#[derive(Debug, Default)]
pub struct Sightings {
    pub campaigns: BTreeMap<(Pid, SpreadId), Sighting>,
    /// Events of campaigns beyond the greatest number.
    pub left_out: u64,
}

/// What events say of a campaign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sighting {
    pub clicks: u64,
    pub impressions: u64,
    pub activations: u64,
    pub effects: u64,
    /// The first and the last time of all events; of rows, the start of their quarter of an hour.
    pub seen: Option<(EventTime, EventTime)>,
    /// The newest name, with the time of its touch.
    name: (EventTime, Box<str>),
    channels: BTreeSet<Box<str>>,
}

impl Sightings {
    /// Reads the store, for these apps. `on_read` is called with the number of touches of such campaigns so far.
    pub fn read(
        reader: &Reader,
        policy: &Policy,
        pids: &BTreeSet<Pid>,
        mut on_read: impl FnMut(u64),
    ) -> Result<Self, StoreError> {
        let is_unknown = |pid: Pid, spreadid: SpreadId| {
            spreadid.0 != 0 && pids.contains(&pid) && policy.campaign(pid, spreadid).is_none()
        };
        let (mut found, mut touches) = (Self::default(), 0);
        let mut visit = |touch: Touch| {
            found.add_touch(&touch);
            touches += 1;
            on_read(touches);
        };
        reader.scan_touches(&mut TouchScan { wants: &is_unknown, visit: &mut visit })?;
        let Some(all) = whole_quarters(EventTime::default()..EventTime::END) else {
            return Ok(found);
        };
        let view = reader.view();
        for pid in pids {
            view.counts(*pid, all.clone(), |counted, totals| {
                if is_unknown(*pid, counted.spreadid) {
                    found.add_rows(counted, u64::try_from(totals.rows).unwrap_or(0));
                }
                ControlFlow::Continue(())
            })?;
        }
        found.name_by_rows(reader)?;
        Ok(found)
    }

    fn add_touch(&mut self, touch: &Touch) {
        let Some(sighting) = self.of(touch.pid, touch.spreadid) else {
            self.left_out += 1;
            return;
        };
        match touch.kind {
            TouchKind::Click => sighting.clicks += 1,
            TouchKind::Impression => sighting.impressions += 1,
        }
        sighting.see(touch.time);
        sighting.add_name(touch.time, value(touch.params(), NAME));
        // Two show that the events contradict each other.
        if sighting.channels.len() < 2 {
            let channel = shown(value(touch.params(), REPORTED_CHANNEL));
            if !channel.is_empty() {
                sighting.channels.insert(channel.into());
            }
        }
    }

    fn add_rows(&mut self, counted: &SummaryKey<'_>, rows: u64) {
        let Some(sighting) = self.of(counted.pid, counted.spreadid) else {
            self.left_out += rows;
            return;
        };
        match counted.what.event_type {
            EventType::Activation => sighting.activations += rows,
            EventType::Effect => sighting.effects += rows,
        }
        sighting.see(counted.time);
    }

    /// Takes the name of a campaign whose touches have expired from its newest activation. A shared store would have to
    /// read all rows for it.
    fn name_by_rows(&mut self, reader: &Reader) -> Result<(), StoreError> {
        let view = reader.view();
        if !view.has_counts() {
            return Ok(());
        }
        let all = EventTime::default()..EventTime::END;
        for ((pid, spreadid), sighting) in &mut self.campaigns {
            if sighting.name().is_some() || sighting.activations == 0 {
                continue;
            }
            let rows = view.credited_activations(*pid, *spreadid, all.clone(), None, 1)?;
            for (key, row) in rows {
                let row = RowView::decode(&row)?;
                sighting.add_name(key.event_time, row.text(TextCell::TouchCampaignName));
            }
        }
        Ok(())
    }

    fn of(&mut self, pid: Pid, spreadid: SpreadId) -> Option<&mut Sighting> {
        let campaign = (pid, spreadid);
        if self.campaigns.len() >= CAMPAIGNS_MAX && !self.campaigns.contains_key(&campaign) {
            return None;
        }
        Some(self.campaigns.entry(campaign).or_default())
    }
}

impl Sighting {
    /// The newest name that the network's macro gave.
    pub fn name(&self) -> Option<&str> {
        Some(&*self.name.1).filter(|name| !name.is_empty())
    }

    /// The channel that the collector received touches of the campaign for; `None` without one, or with several.
    pub fn channel(&self) -> Option<&str> {
        self.channels.first().filter(|_| self.channels.len() == 1).map(|channel| &**channel)
    }

    fn see(&mut self, time: EventTime) {
        let (first, last) = self.seen.unwrap_or((time, time));
        self.seen = Some((first.min(time), last.max(time)));
    }

    fn add_name(&mut self, time: EventTime, name: &str) {
        let name = shown(without_macro(name.trim()));
        let name = name.trim();
        // Among names with the same time the greatest one wins, so that the result does not depend on order.
        if !name.is_empty() && (time, name) > (self.name.0, &*self.name.1) {
            self.name = (time, name.into());
        }
    }
}

/// Returns as much of a text as is kept: its characters that a terminal shows, up to a limit.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !is_unprintable(*letter)).take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::{Device, Pairs, Purpose, TouchFields};

    use super::*;

    fn touch(spreadid: u32, time: i64, params: &[(&str, &str)]) -> Touch {
        let pairs: Pairs =
            params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Touch::from(TouchFields {
            pid: Pid(1),
            id: "c".into(),
            click_id: "c".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(spreadid),
            time: EventTime::from_millis(time).unwrap(),
            lookback_ms: None,
            ids: Pairs::default(),
            device: Device::default(),
            site: "".into(),
            params: pairs,
        })
    }

    /// The name and the channel that touches give, in both orders.
    #[track_caller]
    fn check(touches: &[(i64, &[(&str, &str)])], expected: (Option<&str>, Option<&str>)) {
        let sighting = |touches: Vec<Touch>| {
            let mut found = Sightings::default();
            touches.iter().for_each(|touch| found.add_touch(touch));
            found.campaigns.remove(&(Pid(1), SpreadId(8))).unwrap()
        };
        let touches: Vec<Touch> =
            touches.iter().map(|(time, params)| touch(8, *time, params)).collect();
        let forwards = sighting(touches.clone());
        let backwards = sighting(touches.into_iter().rev().collect());
        assert_eq!(forwards, backwards);
        assert_eq!((forwards.name(), forwards.channel()), expected);
    }

    #[test]
    fn the_newest_name_and_the_only_channel_count() {
        check(&[(5, &[])], (None, None));
        check(&[(5, &[("campaign_name", "A")]), (6, &[("campaign_name", "B")])], (Some("B"), None));
        check(&[(5, &[("campaign_name", "A")]), (5, &[("campaign_name", "B")])], (Some("B"), None));
        check(&[(5, &[("campaign_name", "A")]), (6, &[])], (Some("A"), None));
        check(&[(5, &[("campaign_name", "__CAMPAIGN_NAME__")])], (None, None));
        check(&[(5, &[("campaign_name", " A\u{202e}\n ")])], (Some("A"), None));
        check(&[(5, &[("campaign_name", "\u{202e} A \u{202e}")])], (Some("A"), None));
        check(&[(5, &[("campaign_name", "\u{202e} \u{202e}")])], (None, None));
        check(&[(5, &[("reported_channel", "c")]), (6, &[])], (None, Some("c")));
        check(&[(5, &[("reported_channel", "c\u{9b}")])], (None, Some("c")));
        check(
            &[(5, &[("reported_channel", "c")]), (6, &[("reported_channel", "d")])],
            (None, None),
        );
    }

    #[test]
    fn the_length_of_names_and_channels_is_bounded() {
        let (long, kept) = ("a".repeat(60_000), "a".repeat(TEXT_CHARS_MAX));
        let kept = Some(&*kept);
        check(&[(5, &[("campaign_name", &*long), ("reported_channel", &*long)])], (kept, kept));
    }

    #[test]
    fn the_number_of_campaigns_is_bounded() {
        let mut found = Sightings::default();
        for spreadid in 1..=CAMPAIGNS_MAX as u32 + 5 {
            found.add_touch(&touch(spreadid, 5, &[]));
        }
        found.add_touch(&touch(1, 6, &[]));
        assert_eq!((found.campaigns.len(), found.left_out), (CAMPAIGNS_MAX, 5));
        assert_eq!(found.campaigns[&(Pid(1), SpreadId(1))].clicks, 2);
    }
}
