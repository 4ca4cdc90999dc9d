//! The campaigns that rows are credited to and the settings do not have, on the page of links.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, DAY_MS, Policy};
use attribution::rules::row::EventType;
use serde::Serialize;
use store::layout::summary_counts::whole_quarters;
use store::reader::Reader;

use super::format;
use super::http::request::PageRequest;
use crate::format::time::writer::now;
use crate::http::respond::read;
use crate::{ExportError, Zone};

/// Only rows of this time before now are counted.
const COUNTED_MS: u64 = 7 * DAY_MS;
/// Further campaigns are not counted.
const CAMPAIGNS_MAX: usize = 10_000;
const SHOWN_MAX: usize = 50;

/// A campaign, and the rows that are credited to it.
#[derive(Debug, Default, Serialize)]
pub(super) struct UnknownCampaign {
    spreadid: u32,
    activations: u64,
    effects: u64,
    /// In UTC, each the start of a quarter of an hour.
    first: String,
    last: String,
    #[serde(skip)]
    times: (EventTime, EventTime),
}

/// Returns the campaigns with the most rows. There are none if the store has no counts, so that all rows would have to
/// be read, or if it cannot be read now: the page has its links in any case.
pub(super) async fn unknown_campaigns(
    page_request: &PageRequest,
    app: &AppPolicy,
) -> Vec<UnknownCampaign> {
    let (pid, now) = (app.pid, now());
    let found =
        read(&page_request.state, app, move |reader, policy| find(reader, policy, pid, now));
    found.await.unwrap_or_default()
}

fn find(
    reader: &Reader,
    policy: &Policy,
    pid: Pid,
    now: EventTime,
) -> Result<Vec<UnknownCampaign>, ExportError> {
    let view = reader.view();
    let range = whole_quarters(now.minus(COUNTED_MS)..EventTime::END);
    let (Some(range), true) = (range, view.has_counts()) else { return Ok(Vec::new()) };
    let mut found: BTreeMap<SpreadId, UnknownCampaign> = BTreeMap::new();
    view.counts(pid, range, |counted, totals| {
        let spreadid = counted.spreadid;
        let is_known = spreadid.0 == 0 || policy.campaign(pid, spreadid).is_some();
        if is_known || found.len() >= CAMPAIGNS_MAX && !found.contains_key(&spreadid) {
            return ControlFlow::Continue(());
        }
        let new = || UnknownCampaign { times: (counted.time, counted.time), ..Default::default() };
        let campaign = found.entry(spreadid).or_insert_with(new);
        let rows = u64::try_from(totals.rows).unwrap_or(0);
        match counted.what.event_type {
            EventType::Activation => campaign.activations += rows,
            EventType::Effect => campaign.effects += rows,
        }
        // Counts are visited in the order of time.
        campaign.times.1 = counted.time;
        ControlFlow::Continue(())
    })?;
    let mut campaigns: Vec<UnknownCampaign> = found
        .into_iter()
        .map(|(SpreadId(spreadid), campaign)| UnknownCampaign { spreadid, ..campaign })
        .collect();
    // The sort is stable, so that campaigns with as many rows are in the order of their numbers.
    campaigns.sort_by_key(|campaign| std::cmp::Reverse(campaign.activations + campaign.effects));
    campaigns.truncate(SHOWN_MAX);
    for campaign in &mut campaigns {
        let (first, last) = campaign.times;
        campaign.first = format::date_time(first, &Zone::utc());
        campaign.last = format::date_time(last, &Zone::utc());
    }
    Ok(campaigns)
}
