//! Reads apps, channels and campaigns, and the rules of each.

use std::collections::BTreeMap;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, Origin, Policy};

use super::known_ids::{Apps, Channels};
use super::signatures::{self, Signature, SignatureMode};
use super::store::{self, AppStore};
use super::{attribution_rules, fraud};
use crate::parse::error::{Location, Problem};
use crate::parse::section::Section;

/// The greatest value of `attribution.workers`.
pub(crate) const WORKERS_MAX: usize = 64;

pub(crate) struct Catalogue {
    pub policy: Policy,
    pub channels: Vec<Box<str>>,
    /// The dialects that channels name, by the channel's id.
    pub dialects: BTreeMap<Box<str>, Box<str>>,
    /// How signatures are checked, by the channel's id.
    pub signatures: BTreeMap<Box<str>, Signature>,
    pub stores: BTreeMap<Pid, AppStore>,
    pub workers: Option<usize>,
    /// False if an invalid app was left out.
    pub has_all_apps: bool,
    /// False if an invalid campaign was left out.
    pub has_all_campaigns: bool,
}

pub(crate) fn read(root: &mut Section<'_>, partitions: u16) -> Catalogue {
    let ReadChannels { ids, dialects, signatures, channels } = read_channels(root);
    let mut base = AppPolicy::new(Pid(0), "");
    let workers = root.table("attribution", |table| {
        attribution_rules::read_rules(table, &mut base, Origin::AllApps);
        table.integer("workers", 1..=WORKERS_MAX as u64)
    });
    root.table("fraud", |table| fraud::read_rules(table, &mut base.fraud, &channels));
    let (read, apps) = read_apps(root, &base, partitions, &channels);
    let (campaigns, has_all_campaigns) = read_campaigns(root, &apps, &channels);
    let stores = read.iter().map(|(app, store)| (app.pid, *store)).collect();
    let policies = read.into_iter().map(|(app, _)| app).collect();
    let signed = signatures.iter().filter(|(_, of)| of.mode == SignatureMode::Enforce);
    let signed = signed.map(|(channel, _)| channel.clone());
    let policy = Policy::new(policies, campaigns).with_signed_channels(signed);
    Catalogue {
        policy,
        channels: ids,
        dialects,
        signatures,
        stores,
        workers,
        has_all_apps: apps.complete,
        has_all_campaigns,
    }
}

/// The channels, each part by their ids.
struct ReadChannels {
    /// In the order of the file.
    ids: Vec<Box<str>>,
    dialects: BTreeMap<Box<str>, Box<str>>,
    signatures: BTreeMap<Box<str>, Signature>,
    channels: Channels,
}

fn read_channels(root: &mut Section<'_>) -> ReadChannels {
    let (mut taken, mut dialects) = (BTreeMap::new(), BTreeMap::new());
    let mut by_id = BTreeMap::new();
    let (channels, complete) = root.tables("channels", |channel| {
        let id = channel.text("id", parse_channel_id);
        let dialect = channel.text("dialect", parse_dialect);
        let signature = channel.table("signature", signatures::read);
        let windows = channel.table("attribution", attribution_rules::read_windows);
        channel.require("id", "the channel's id");
        let id = id?;
        channel.require_unique("id", &id, &mut taken);
        dialects.extend(dialect.map(|dialect| (id.clone(), dialect)));
        by_id.extend(signature.map(|signature| (id.clone(), signature)));
        Some((id, windows))
    });
    let ids = channels.iter().map(|(id, _)| id.clone()).collect();
    let channels = Channels { windows: channels.into_iter().collect(), complete };
    ReadChannels { ids, dialects, signatures: by_id, channels }
}

fn read_apps(
    root: &mut Section<'_>,
    base: &AppPolicy,
    partitions: u16,
    channels: &Channels,
) -> (Vec<(AppPolicy, AppStore)>, Apps) {
    let (mut pids, mut keys) = (BTreeMap::new(), BTreeMap::new());
    let (apps, complete) =
        root.tables("apps", |app| read_app(app, base, partitions, channels, &mut pids, &mut keys));
    let windows = apps.iter().map(|(app, _)| (app.pid, app.windows)).collect();
    (apps, Apps { windows, complete })
}

fn read_app(
    app: &mut Section<'_>,
    base: &AppPolicy,
    partitions: u16,
    channels: &Channels,
    pids: &mut BTreeMap<u32, Location>,
    keys: &mut BTreeMap<Box<str>, Location>,
) -> Option<(AppPolicy, AppStore)> {
    let pid = app.integer("pid", 0..=u64::from(u32::MAX));
    let key = app.text("key", parse_app_key);
    let previous_key = app.text("previous_key", parse_app_key);
    let name = app.text("name", parse_name);
    let mut policy = base.clone();
    app.table("attribution", |table| {
        attribution_rules::read_rules(table, &mut policy, Origin::App)
    });
    app.table("fraud", |table| fraud::read_rules(table, &mut policy.fraud, channels));
    let stored = app.table("store", |table| store::read_app(table, partitions));
    app.require("pid", "the app's number");
    app.require("key", "the app's key, as events name it");
    // Both are checked before the first `?`, so that errors in both are reported.
    pid.iter().for_each(|pid| app.require_unique("pid", pid, pids));
    key.iter().for_each(|key| app.require_unique("key", key, keys));
    let (pid, key) = (Pid(pid?), key?);
    let name = name.unwrap_or(key.clone());
    Some((AppPolicy { pid, key, previous_key, name, ..policy }, stored))
}

/// Reads the campaigns. The returned flag is true if all are valid.
fn read_campaigns(
    root: &mut Section<'_>,
    apps: &Apps,
    channels: &Channels,
) -> (Vec<Campaign>, bool) {
    let mut taken = BTreeMap::new();
    root.tables("campaigns", |campaign| {
        let spreadid = campaign.integer("spreadid", 1..=u64::from(u32::MAX));
        let pid = campaign.integer("pid", 0..=u64::from(u32::MAX)).map(Pid);
        let channel = campaign.text("channel", |id| channels.parse(id));
        let name = campaign.text("name", parse_name);
        let overrides = campaign.table("attribution", attribution_rules::read_windows);
        campaign.require("spreadid", "the campaign's number");
        campaign.require("pid", "the number of one of the [[apps]]");
        campaign.require("channel", "the id of one of the [[channels]]");
        spreadid.iter().for_each(|id| campaign.require_unique("spreadid", id, &mut taken));
        let app_windows = pid.and_then(|pid| apps.windows.get(&pid));
        if let (Some(Pid(pid)), None, true) = (pid, app_windows, apps.complete) {
            campaign.reject("pid", apps.expected(), pid.to_string());
        }
        let (spreadid, pid, channel) = (SpreadId(spreadid?), pid?, channel?);
        let channel_windows = channels.windows.get(&channel).copied().unwrap_or_default();
        let windows = channel_windows.apply_to(*app_windows?, Origin::Channel);
        let windows = overrides.apply_to(windows, Origin::Campaign);
        Some(Campaign { spreadid, pid, channel, name: name.unwrap_or_default(), windows })
    })
}

/// The channel that exports show for campaigns that are not in the catalogue.
const UNKNOWN_CHANNEL: &str = "unknown";

fn parse_channel_id(text: &str) -> Result<Box<str>, Problem> {
    if text == UNKNOWN_CHANNEL {
        return Err(
            "expected another id: this one is reserved for campaigns that are not in the catalogue"
                .into(),
        );
    }
    if text.is_empty() { Err("expected a non-empty id".into()) } else { Ok(text.into()) }
}

/// Parses the name of a dialect, which is that of a file without its extension. Only the collector knows the names.
fn parse_dialect(text: &str) -> Result<Box<str>, Problem> {
    if text.is_empty() { Err("expected the name of a dialect".into()) } else { Ok(text.into()) }
}

fn parse_name(text: &str) -> Result<Box<str>, Problem> {
    Ok(text.into())
}

/// Parses an app key. Keys are part of URL paths, so slashes are not allowed.
fn parse_app_key(text: &str) -> Result<Box<str>, Problem> {
    let is_plain =
        !text.contains(|c: char| c == '/' || c.is_control()) && text != "." && text != "..";
    if (1..=100).contains(&text.chars().count()) && is_plain {
        Ok(text.into())
    } else {
        Err("expected an app key of 1 to 100 characters that is valid in a URL path: no slash, \
             no control character, not \".\" or \"..\""
            .into())
    }
}
