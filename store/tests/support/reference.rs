//! A second, slow implementation of the contract: every rule as written, over all facts at once, without an index or a
//! store. It shares only the facts and the settings with the engine; [`super::normalise`] normalises what they contain.

use std::collections::BTreeMap;

use attribution::facts::device_ids::{DeviceId, IdValue};
use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Fact, Purpose, TextPairs, Touch, TouchKind,
};
use attribution::rules::policy::{AppPolicy, DAY_MS, HOUR_MS, Policy, ReinstallEffects, Windows};

use super::normalise::{
    self, Form, Id, Ids, KINDS, Owner, address, address_of_one_device, md5_hex, present,
};
use super::row_text::ad_text;
use super::rules::app_key;

/// Returns the decisions about all facts in the form of [`super::row_text::RowText::decision`], sorted.
pub fn decisions(policy: &Policy, facts: &[Fact]) -> Vec<String> {
    let mut decisions = Vec::new();
    for app in policy.apps() {
        let app_facts = AppFacts::new(policy, app, facts);
        decisions.extend(app_facts.activations.iter().map(|activation| {
            let credit = app_facts.credit(activation);
            let class = app_facts.class(activation).name;
            let time = activation.fact.time.millis();
            let event = format!("{} @{time} activation {}", app.pid.0, activation.id);
            line(&event, class, Some(activation), &credit, Ads::All)
        }));
        decisions.extend(app_facts.effects.iter().map(|effect| app_facts.effect(effect)));
    }
    decisions.sort();
    decisions
}

/// A fact with its id and its normalised device ids.
struct Known<'a, T> {
    fact: &'a T,
    id: String,
    ids: Ids,
}

/// The canonical facts of one app.
struct AppFacts<'a> {
    policy: &'a Policy,
    app: &'a AppPolicy,
    touches: Vec<Known<'a, Touch>>,
    activations: Vec<Known<'a, Activation>>,
    effects: Vec<Known<'a, Effect>>,
}

struct Class<'a> {
    name: &'static str,
    last_install: Option<&'a Known<'a, Activation>>,
}

struct Credit<'a> {
    status: &'static str,
    winner: Option<Candidate<'a>>,
    contributors: Vec<Candidate<'a>>,
    reason: &'static str,
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    touch: &'a Known<'a, Touch>,
    key: &'static str,
    tier: u8,
}

impl<'a> AppFacts<'a> {
    fn new(policy: &'a Policy, app: &'a AppPolicy, facts: &'a [Fact]) -> Self {
        let mut canonical: BTreeMap<(&str, String), &Fact> = BTreeMap::new();
        for fact in facts.iter().filter(|fact| fact.pid() == app.pid) {
            let current = canonical.entry((type_of(fact), id_of(fact))).or_insert(fact);
            if precedence(fact) < precedence(current) {
                *current = fact;
            }
        }
        let mut app_facts =
            Self { policy, app, touches: vec![], activations: vec![], effects: vec![] };
        for ((_, id), fact) in canonical {
            match fact {
                Fact::Touch(fact) => {
                    let ids = normalise::ids(fact.ids(), Owner::Touch);
                    app_facts.touches.push(Known { fact, id, ids });
                }
                Fact::Activation(fact) => {
                    let ids = normalise::ids((&fact.ids).into(), Owner::AppEvent);
                    app_facts.activations.push(Known { fact, id, ids });
                }
                Fact::Effect(fact) => {
                    let ids = normalise::ids((&fact.ids).into(), Owner::AppEvent);
                    app_facts.effects.push(Known { fact, id, ids });
                }
            }
        }
        app_facts
            .activations
            .sort_by_key(|activation| (activation.fact.time, activation.id.clone()));
        app_facts
    }

    /// Classifies an activation (section 2 of the contract).
    fn class(&self, activation: &Known<'_, Activation>) -> Class<'_> {
        let is_in_chain = |member: &&Known<'_, Activation>| {
            member.id == activation.id || shared_kind(&member.ids, &activation.ids).is_some()
        };
        let mut last_install: Option<&Known<'_, Activation>> = None;
        let mut last_non_duplicate: Option<&Known<'_, Activation>> = None;
        for member in self.activations.iter().filter(is_in_chain) {
            let since = |earlier: &Known<'_, Activation>| {
                member.fact.time.millis() - earlier.fact.time.millis()
            };
            let name = if last_non_duplicate
                .is_some_and(|earlier| since(earlier) < self.app.duplicate_within_ms)
            {
                "duplicate"
            } else if last_install
                .is_none_or(|install| since(install) > self.app.reattribution_window_ms)
            {
                "install"
            } else {
                "reinstall"
            };
            if member.id == activation.id {
                return Class { name, last_install };
            }
            if name != "duplicate" {
                last_non_duplicate = Some(member);
            }
            if name == "install" {
                last_install = Some(member);
            }
        }
        panic!("an activation is in its own install chain");
    }

    /// Returns the credit of an activation (sections 3, 4 and 5).
    fn credit(&self, activation: &Known<'_, Activation>) -> Credit<'_> {
        let uncredited =
            |status, reason| Credit { status, winner: None, contributors: vec![], reason };
        let class = self.class(activation).name;
        if self.blocks(&activation.fact.device.ip, &activation.ids) {
            return uncredited("rejected", "blocked");
        }
        if class == "duplicate" {
            return uncredited("duplicate", "-");
        }
        let clicks = self.touches.iter().filter(|touch| touch.fact.kind == TouchKind::Click);
        let clicks: Vec<_> = clicks.filter(|click| by_id(click, activation).is_some()).collect();
        let mut accepted: Vec<Candidate<'_>> = self
            .touches
            .iter()
            .filter(|touch| class == "install" || touch.fact.purpose == Purpose::Retargeting)
            .filter_map(|touch| self.candidate(touch, activation))
            .filter(|candidate| self.is_accepted(candidate.touch, activation, &clicks))
            .collect();
        accepted.sort_by_key(|candidate| {
            let Candidate { touch, key, tier } = candidate;
            (*tier, touch.fact.time, rank(key), touch.id.clone())
        });
        let Some(winner) = accepted.pop() else {
            return uncredited(if class == "install" { "organic" } else { "unattributed" }, "-");
        };
        // Newest first; of two at one time, a click is before the impression with its id.
        accepted.sort_by_key(|Candidate { touch, .. }| {
            (touch.fact.time, touch.id.clone(), touch.fact.kind == TouchKind::Click)
        });
        let contributors = accepted.into_iter().rev().take(3).collect();
        Credit { status: "attributed", winner: Some(winner), contributors, reason: "-" }
    }

    fn candidate<'t>(
        &self,
        touch: &'t Known<'t, Touch>,
        activation: &Known<'_, Activation>,
    ) -> Option<Candidate<'t>> {
        let (time, of_activation) = (touch.fact.time.millis(), activation.fact.time.millis());
        if time >= of_activation {
            return None;
        }
        let age_ms = of_activation - time;
        let windows = self
            .policy
            .campaign(self.app.pid, touch.fact.spreadid)
            .map_or(self.app.windows, |campaign| campaign.windows);
        let Windows {
            click_ms,
            click_probabilistic_ms,
            impression_ms,
            impression_probabilistic_ms,
            ..
        } = windows;
        let is_click = touch.fact.kind == TouchKind::Click;
        let [by_id_ms, probabilistic_ms] = if is_click {
            [click_ms, click_probabilistic_ms]
        } else {
            [impression_ms, impression_probabilistic_ms]
        };
        let by_id_ms = touch.fact.lookback_ms.map_or(by_id_ms, |ms| ms.min(90 * DAY_MS));
        let probabilistic_ms = probabilistic_ms.min(24 * HOUR_MS);
        let tier = |by_click, by_impression| if is_click { by_click } else { by_impression };
        if let Some(key) = by_id(touch, activation).filter(|_| age_ms <= by_id_ms) {
            return Some(Candidate { touch, key, tier: tier(4, 2) });
        }
        let key = probabilistic(touch, activation).filter(|_| self.app.probabilistic)?;
        (age_ms <= probabilistic_ms).then_some(Candidate { touch, key, tier: tier(3, 1) })
    }

    /// Applies the fraud rules (section 4). `clicks` are those that match the activation by id.
    fn is_accepted(
        &self,
        touch: &Known<'_, Touch>,
        activation: &Known<'_, Activation>,
        clicks: &[&Known<'_, Touch>],
    ) -> bool {
        let fraud = &self.app.fraud;
        let channel = self.channel(touch.fact);
        let is_site_of = |sites: &[Box<str>]| {
            present(touch.fact.site()).is_some_and(|site| sites.iter().any(|of| **of == *site))
        };
        if fraud.allow_channels.iter().any(|id| **id == *channel) || is_site_of(&fraud.allow_sites)
        {
            return true;
        }
        if self.blocks(touch.fact.device().ip, &touch.ids) || is_site_of(&fraud.block_sites) {
            return false;
        }
        let mut params = touch.fact.params();
        let signature = params.find(|(name, _)| *name == "signature").map_or("", |(_, how)| how);
        if self.policy.is_signed_channel(channel) && !["", "valid"].contains(&signature) {
            return false;
        }
        let (time, of_activation) = (touch.fact.time, activation.fact.time);
        if activation.fact.install_begin_time.is_some_and(|begin| time > begin) {
            return false;
        }
        if of_activation.millis() - time.millis() < fraud.ctit_min_ms {
            return false;
        }
        let counted = clicks.iter().filter(|click| {
            self.channel(click.fact) == channel
                && click.fact.time <= time
                && click.fact.time.millis() + 24 * HOUR_MS > time.millis()
        });
        let max = fraud.clicks_per_device_max as usize;
        max == 0 || touch.fact.kind != TouchKind::Click || counted.count() <= max
    }

    fn channel(&self, touch: &Touch) -> &str {
        let campaign = self.policy.campaign(self.app.pid, touch.spreadid);
        campaign.map_or("unknown", |campaign| &campaign.channel)
    }

    fn blocks(&self, ip: &str, ids: &Ids) -> bool {
        let fraud = &self.app.fraud;
        address(ip).is_some_and(|ip| fraud.block_ips.iter().any(|range| range.contains(ip)))
            || fraud.block_devices.iter().any(|id| ids.contains(&blocked_id(id)))
    }

    /// Returns the decision for an effect (section 6).
    fn effect(&self, effect: &Known<'_, Effect>) -> String {
        let of_effect = effect.fact.time.millis();
        let event = format!("{} @{of_effect} effect {}", self.app.pid.0, effect.id);
        let inherited_from = self.activations.iter().rfind(|activation| {
            let time = activation.fact.time.millis();
            time <= of_effect + self.app.clock_skew_ms
                && of_effect.saturating_sub(time) <= self.app.effect_window_ms
                && shared_kind(&activation.ids, &effect.ids).is_some()
                && self.class(activation).name != "duplicate"
        });
        let Some(activation) = inherited_from else {
            let orphan =
                Credit { status: "orphan", winner: None, contributors: vec![], reason: "-" };
            return line(&event, "-", None, &orphan, Ads::OfEffect);
        };
        let mut credit = self.credit(activation);
        let class = self.class(activation);
        if credit.status == "unattributed" {
            match self.app.reinstall_effects {
                ReinstallEffects::Original => {
                    let install = class.last_install.expect("a reinstall follows an install");
                    credit = self.credit(install);
                }
                ReinstallEffects::Organic => credit.status = "organic",
            }
        }
        line(&event, class.name, Some(activation), &credit, Ads::OfEffect)
    }
}

/// What a decision keeps of the ads of its touches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ads {
    /// Callback tokens and params, of the winner and the contributors.
    All,
    /// The winner's params.
    OfEffect,
}

const AD_PARAMS: [&str; 9] = [
    "ad_id",
    "ad_name",
    "adset_id",
    "adset_name",
    "campaign_id",
    "campaign_name",
    "channel",
    "creative_id",
    "creative_name",
];

fn ad(touch: &Touch, ads: Ads) -> String {
    let param = |name: &str| {
        let received = touch.params().find(|(known, _)| *known == name);
        received.and_then(|(_, value)| present(value)).unwrap_or_default()
    };
    let callback = if ads == Ads::All { param("callback") } else { "" };
    ad_text(callback, AD_PARAMS.map(|name| (name, param(name))))
}

fn line(
    event: &str,
    class: &str,
    activation: Option<&Known<'_, Activation>>,
    credit: &Credit<'_>,
    ads: Ads,
) -> String {
    let kind = |touch: &Touch| match touch.kind {
        TouchKind::Click => "click",
        TouchKind::Impression => "impression",
    };
    let winner = credit.winner.map_or("-  @- -".into(), |Candidate { touch, key, .. }| {
        let ad = ad(touch.fact, ads);
        format!("{} {} @{} {key}{ad}", kind(touch.fact), touch.id, touch.fact.time.millis())
    });
    let activation = activation.map_or(" @-".into(), |activation| {
        format!("{} @{}", activation.id, activation.fact.time.millis())
    });
    let contributors: Vec<_> = credit
        .contributors
        .iter()
        .map(|Candidate { touch, key, .. }| {
            let Touch { spreadid, time, .. } = touch.fact;
            let ad = if ads == Ads::All { ad(touch.fact, ads) } else { String::new() };
            format!("{} {} @{} {key}{ad}", spreadid.0, kind(touch.fact), time.millis())
        })
        .collect();
    let spreadid = credit.winner.map_or(0, |winner| winner.touch.fact.spreadid.0);
    let contributors = contributors.join(", ");
    let Credit { status, reason, .. } = credit;
    format!(
        "{event} | {status} {class} {spreadid} | {winner} | {activation} | {reason} | {contributors}"
    )
}

/// Returns the order of messages with one id; the least is the fact.
fn precedence(fact: &Fact) -> (EventTime, String, &Fact) {
    (fact.time(), content(fact), fact)
}

/// Returns the type of a fact; only one fact of a type has an id.
fn type_of(fact: &Fact) -> &'static str {
    match fact {
        Fact::Touch(touch) if touch.kind == TouchKind::Click => "click",
        Fact::Touch(_) => "impression",
        Fact::Activation(_) => "activation",
        Fact::Effect(_) => "effect",
    }
}

/// Returns the received id, or the hash of the content if it identifies nothing. No received event id begins with `#`.
fn id_of(fact: &Fact) -> String {
    let received = match fact {
        Fact::Touch(touch) => normalise::click_id(touch.click_id()),
        Fact::Activation(_) | Fact::Effect(_) => {
            let is_received = |id: &String| !id.starts_with('#') && normalise::identifies_event(id);
            Some(fact.id().to_owned()).filter(is_received)
        }
    };
    received.unwrap_or_else(|| format!("#{}", md5_hex(&content(fact))))
}

/// Returns the canonical content of a fact as the contract defines it.
fn content(fact: &Fact) -> String {
    let mut fields = BTreeMap::new();
    let (mut params, mut props) = (String::new(), String::new());
    match fact {
        Fact::Touch(touch) => {
            fields.insert("spreadid", touch.spreadid.0.to_string());
            let is_ua = touch.purpose == Purpose::Ua;
            fields.insert("purpose", if is_ua { "ua" } else { "retargeting" }.to_owned());
            fields.extend(touch.lookback_ms.map(|ms| ("lookback_ms", ms.to_string())));
            fields.insert("click_id", touch.click_id().to_owned());
            fields.insert("site", touch.site().to_owned());
            params = content_of_pairs(touch.params());
        }
        Fact::Activation(activation) => {
            let begin = activation.install_begin_time;
            fields.extend(begin.map(|time| ("install_begin_time", time.millis().to_string())));
            fields.insert("click_id", activation.click_id.to_string());
            fields.insert("app_version", activation.app_version.to_string());
            props = content_of_pairs((&activation.props).into());
        }
        Fact::Effect(effect) => {
            fields.insert("name", effect.name.to_string());
            fields.insert("app_version", effect.app_version.to_string());
            fields.insert("revenue", effect.revenue.to_string());
            fields.insert("currency", effect.currency.to_string());
            props = content_of_pairs((&effect.props).into());
        }
    }
    let Device { ip, ua, model, os, os_version } = fact.device();
    fields.insert("type", type_of(fact).to_owned());
    fields.insert("app", app_key(fact.pid()).to_owned());
    fields.insert("time", fact.time().millis().to_string());
    fields.insert("ip", ip.to_string());
    fields.insert("ua", ua.to_string());
    fields.insert("device_model", model.to_string());
    fields.insert("os", os.to_string());
    fields.insert("os_version", os_version.to_string());
    let order = "type app name spreadid time purpose lookback_ms install_begin_time click_id ip ua \
                 device_model os os_version app_version site revenue currency";
    let field = |name| fields.get(name).cloned().unwrap_or_default();
    let mut values: Vec<String> = order.split_whitespace().map(field).collect();
    values.extend([content_of_pairs(fact.ids()), params, props]);
    values.join("\u{1f}")
}

/// Returns the keys in order, each with its values.
fn content_of_pairs(pairs: TextPairs<'_>) -> String {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, value) in pairs {
        by_key.entry(key).or_default().push(value);
    }
    let pairs = by_key.into_iter().map(|(key, values)| format!("{key}={}", values.join(",")));
    pairs.collect::<Vec<_>>().join("\u{1e}")
}

/// Returns an id of the settings, which are those of the engine, in the form of the reference.
fn blocked_id(id: &DeviceId) -> Id {
    match &id.value {
        IdValue::Raw(text) => (id.kind.name(), Form::Raw, text.to_string()),
        IdValue::Md5(digest) => {
            let md5 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            (id.kind.name(), Form::Md5, md5)
        }
    }
}

/// The match keys, best first; oaid, gaid and idfa rank equally.
const KEYS: [&str; 11] = [
    "click_id",
    "oaid",
    "gaid",
    "idfa",
    "caid",
    "idfv",
    "imei",
    "android_id",
    "mac",
    "ip_device",
    "ip_ua",
];

fn rank(key: &str) -> usize {
    match key {
        "gaid" | "idfa" => rank("oaid"),
        key => {
            KEYS.len()
                - KEYS.iter().position(|other| *other == key).expect("the match key is listed")
        }
    }
}

/// Returns the best id kind of which `a` and `b` have an equal value; of equal rank the first of oaid, gaid, idfa.
fn shared_kind(a: &Ids, b: &Ids) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| a.iter().any(|id| id.0 == *kind && b.contains(id)))
}

/// Checks whether a kind has values of one form in `a` and in `b`, and no equal value.
fn contradict(a: &Ids, b: &Ids) -> bool {
    KINDS.into_iter().any(|kind| {
        let of_kind =
            |ids: &Ids| -> Ids { ids.iter().filter(|id| id.0 == kind).cloned().collect() };
        let (a, b) = (of_kind(a), of_kind(b));
        let are_comparable = a.iter().any(|id| b.iter().any(|other| id.1 == other.1));
        are_comparable && a.is_disjoint(&b)
    })
}

fn by_id(touch: &Known<'_, Touch>, activation: &Known<'_, Activation>) -> Option<&'static str> {
    let named = normalise::click_id(&activation.fact.click_id);
    let is_named = named.is_some() && named == normalise::click_id(touch.fact.click_id());
    if is_named { Some("click_id") } else { shared_kind(&touch.ids, &activation.ids) }
}

fn probabilistic(
    touch: &Known<'_, Touch>,
    activation: &Known<'_, Activation>,
) -> Option<&'static str> {
    let (a, b) = (touch.fact.device(), activation.fact.device.borrowed());
    let ip = address_of_one_device(a.ip)?;
    if address_of_one_device(b.ip) != Some(ip) || contradict(&touch.ids, &activation.ids) {
        return None;
    }
    let is_equal = |a: &str, b: &str| present(a).is_some() && present(a) == present(b);
    if is_equal(a.model, b.model) && is_equal(a.os, b.os) && is_equal(a.os_version, b.os_version) {
        Some("ip_device")
    } else {
        is_equal(a.ua, b.ua).then_some("ip_ua")
    }
}
