//! The page of links: the link of a campaign for the console of a network, or those for people, and what came of the
//! last requests of each.

use std::collections::BTreeMap;

use attribution::rules::policy::{AppPolicy, Campaign, Policy};
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use serde::Serialize;
use serde_json::Value;

use super::export_form::options::APP;
use super::export_form::view::{Alternative, alternative};
use super::http::request::PageRequest;
use super::http::respond;
use super::layout::{AppChoice, choose};
use super::lookup::no_app;
use super::unknown_campaigns::unknown_campaigns;
use crate::http::problem::Problem;
use crate::query::parameter::CHANNEL;
use crate::{PersonLink, ReportLink, TrackingLinks};

const CAMPAIGN: &str = "campaign";
const KIND: &str = "kind";

const CLICK: &str = "click";
const IMPRESSION: &str = "impression";
const PERSON: &str = "person";
/// The kinds of links, by their value in the URL, with a label and a hint.
const KINDS: [(&str, &str, &str); 3] = [
    (CLICK, "Clicks", "reported by a network"),
    (IMPRESSION, "Impressions", "reported by a network"),
    (PERSON, "People", "who go on to a store or page"),
];

#[derive(Debug, Serialize)]
struct Form {
    apps: Vec<AppChoice>,
    channels: Vec<Named>,
    campaigns: Vec<Named>,
    kinds: Vec<Alternative>,
    /// Error messages by field.
    wrong: BTreeMap<&'static str, String>,
}

/// An option of a list.
#[derive(Debug, Serialize)]
struct Named {
    value: String,
    name: String,
    is_chosen: bool,
}

#[derive(Debug, Serialize)]
struct ShownLink {
    title: String,
    url: String,
    /// The dialect of a network's link.
    dialect: Option<Box<str>>,
    is_verified: bool,
    /// True if the channel's signatures are checked, and the link has none.
    is_unsigned: bool,
    /// The last requests; `None` if other processes receive them.
    recent: Option<Value>,
    /// Where the admin listener of these processes has them.
    operators_path: String,
}

pub(crate) async fn links(page_request: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&page_request.apps(), page_request.value(APP));
    let mut wrong: BTreeMap<_, _> = match app {
        None if !page_request.value(APP).is_empty() => no_app(&page_request).into_iter().collect(),
        _ => BTreeMap::new(),
    };
    let of_app = app.map(|app| campaigns(&page_request.state.policy, app)).unwrap_or_default();
    let (channel, channels) = choose_channel(&of_app, page_request.value(CHANNEL));
    if app.is_some() && channel.is_none() {
        wrong.insert(CHANNEL, "The app has no campaign of this channel.".to_owned());
    }
    let of_channel =
        |campaign: &&&Campaign| channel.is_none_or(|id| id.is_empty() || *campaign.channel == *id);
    let of_channel: Vec<&Campaign> = of_app.iter().filter(of_channel).copied().collect();
    let (campaign, campaigns) = choose_campaign(&of_app, &of_channel, page_request.value(CAMPAIGN));
    if campaign.is_none() && !of_channel.is_empty() {
        wrong.insert(CAMPAIGN, "Choose a campaign of this app and channel.".to_owned());
    }
    let kind = match page_request.value(KIND) {
        "" => CLICK,
        kind => kind,
    };
    if KINDS.iter().all(|(known, ..)| *known != kind) {
        wrong.insert(KIND, "Choose one of these.".to_owned());
    }
    let links = page_request.state.links.as_deref();
    let chosen = app.zip(campaign).zip(links).filter(|_| wrong.is_empty());
    let chosen = chosen.map(|((app, campaign), links)| shown(links, app, campaign, kind));
    let chosen = chosen.unwrap_or_default();
    let status = match wrong.contains_key(APP) {
        true => StatusCode::NOT_FOUND,
        false if wrong.is_empty() => StatusCode::OK,
        false => StatusCode::BAD_REQUEST,
    };
    let kinds = KINDS.into_iter().map(|named| alternative(named, kind)).collect();
    let form = Form { apps, channels, campaigns, kinds, wrong };
    let shell = page_request.shell("Links", "/links");
    let unknown = match app {
        Some(app) => unknown_campaigns(&page_request, app).await,
        None => Vec::new(),
    };
    let (has_links, is_person) = (links.is_some(), kind == PERSON);
    let page = context! { form, chosen, unknown, has_links, is_person };
    respond::page(status, "links.html", &shell, page)
}

/// Returns the campaigns of the app, by their number.
fn campaigns<'p>(policy: &'p Policy, app: &AppPolicy) -> Vec<&'p Campaign> {
    let mut campaigns: Vec<_> = policy.campaigns().filter(|one| one.pid == app.pid).collect();
    campaigns.sort_by_key(|campaign| campaign.spreadid);
    campaigns
}

/// Returns the chosen channel (empty for all; `None` if no campaign has it), and the options of the list.
fn choose_channel<'p>(campaigns: &[&'p Campaign], id: &'p str) -> (Option<&'p str>, Vec<Named>) {
    let mut channels: Vec<&str> = campaigns.iter().map(|campaign| &*campaign.channel).collect();
    channels.sort_unstable();
    channels.dedup();
    let chosen = Some(id).filter(|id| id.is_empty() || channels.contains(id));
    let all = ("", "All channels");
    let options = std::iter::once(all).chain(channels.into_iter().map(|id| (id, id)));
    let options = options.map(|(value, name)| Named {
        value: value.to_owned(),
        name: name.to_owned(),
        is_chosen: chosen == Some(value),
    });
    (chosen, options.collect())
}

/// Returns the campaign of the channel with this number, and the options of the list. Without a number it is the first
/// one, and so it is with a campaign of another channel, which the form still has after the channel was changed.
fn choose_campaign<'p>(
    of_app: &[&'p Campaign],
    of_channel: &[&'p Campaign],
    number: &str,
) -> (Option<&'p Campaign>, Vec<Named>) {
    let parsed = number.parse::<u32>().ok();
    let find = |campaigns: &[&'p Campaign]| {
        campaigns.iter().copied().find(|campaign| Some(campaign.spreadid.0) == parsed)
    };
    let takes_first = number.is_empty() || find(of_app).is_some();
    let first = of_channel.first().copied().filter(|_| takes_first);
    let chosen = find(of_channel).or(first);
    let option = |campaign: &&Campaign| Named {
        value: campaign.spreadid.0.to_string(),
        name: title(campaign),
        is_chosen: chosen.is_some_and(|chosen| chosen.spreadid == campaign.spreadid),
    };
    (chosen, of_channel.iter().map(option).collect())
}

fn title(campaign: &Campaign) -> String {
    let Campaign { spreadid, name, channel, .. } = campaign;
    if name.is_empty() {
        format!("{} ({channel})", spreadid.0)
    } else {
        format!("{} {name} ({channel})", spreadid.0)
    }
}

/// Returns the links of the campaign. There is none if the settings have none for people, or if the dialect of the
/// channel cannot be read.
fn shown(
    links: &dyn TrackingLinks,
    app: &AppPolicy,
    campaign: &Campaign,
    kind: &str,
) -> Vec<ShownLink> {
    if kind == PERSON {
        let of_campaign = links.person_links(campaign.spreadid).into_iter();
        let shown = of_campaign.map(|PersonLink { id, url, is_unsigned }| ShownLink {
            title: id.to_string(),
            url,
            dialect: None,
            is_verified: true,
            is_unsigned,
            recent: links.recent_clicks(&id),
            operators_path: format!("/requests?link={id}"),
        });
        return shown.collect();
    }
    let (key, channel, spreadid) = (&*app.key, &*campaign.channel, campaign.spreadid);
    let is_impression = kind == IMPRESSION;
    let link = ReportLink { app: key, channel, spreadid, is_impression };
    let number = spreadid.0.to_string();
    let pairs = [(APP, key), (CHANNEL, channel), (CAMPAIGN, &*number), (KIND, kind)];
    let query = serde_urlencoded::to_string(pairs).unwrap_or_default();
    let shown = links.report_url(link).map(|report| ShownLink {
        title: title(campaign),
        url: report.url,
        dialect: Some(report.dialect),
        is_verified: report.is_verified,
        is_unsigned: report.is_unsigned,
        recent: links.recent_reports(link),
        operators_path: format!("/requests?{query}"),
    });
    shown.into_iter().collect()
}
