//! A second, slow implementation of the contract: every rule as written, over all facts at once, without an index or a
//! store. It shares only the facts, the settings and the normalised ids with the engine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use attribution::facts::device_ids::{self, DeviceId, DeviceIds, IdKind};
use attribution::facts::event::{
    Activation, Device, Effect, Fact, Pairs, Purpose, Touch, TouchKind,
};
use attribution::rules::policy::{AppPolicy, DAY_MS, HOUR_MS, Policy, ReinstallEffects, Windows};

use super::rules::app_key;

/// Returns the decisions about all facts in the form of [`super::row_text::RowText::decision`], sorted.
pub fn decisions(policy: &Policy, facts: &[Fact]) -> Vec<String> {
    let mut decisions = Vec::new();
    for app in policy.apps() {
        let app_facts = AppFacts::new(policy, app, facts);
        decisions.extend(app_facts.activations.iter().map(|activation| {
            let credit = app_facts.credit(activation);
            let class = app_facts.class(activation).name;
            line(
                &format!(
                    "{} @{} activation {}",
                    app.pid.0,
                    activation.time.millis(),
                    activation.id
                ),
                class,
                Some(activation),
                &credit,
            )
        }));
        decisions.extend(app_facts.effects.iter().map(|effect| app_facts.effect(effect)));
    }
    decisions.sort();
    decisions
}

/// The canonical facts of one app.
struct AppFacts<'a> {
    policy: &'a Policy,
    app: &'a AppPolicy,
    touches: Vec<&'a Touch>,
    activations: Vec<&'a Activation>,
    effects: Vec<&'a Effect>,
}

struct Class<'a> {
    name: &'static str,
    last_install: Option<&'a Activation>,
}

struct Credit<'a> {
    status: &'static str,
    winner: Option<Candidate<'a>>,
    contributors: Vec<Candidate<'a>>,
    reason: &'static str,
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    touch: &'a Touch,
    key: &'static str,
    tier: u8,
}

impl<'a> AppFacts<'a> {
    fn new(policy: &'a Policy, app: &'a AppPolicy, facts: &'a [Fact]) -> Self {
        let mut canonical: BTreeMap<(&str, &str), &Fact> = BTreeMap::new();
        for fact in facts.iter().filter(|fact| fact.pid() == app.pid) {
            let family = match fact {
                Fact::Touch(_) => "touch",
                Fact::Activation(_) => "activation",
                Fact::Effect(_) => "effect",
            };
            let current = canonical.entry((family, fact.id())).or_insert(fact);
            let order = |fact: &Fact| (fact.time(), content(fact).into_bytes());
            if order(fact) < order(current) {
                *current = fact;
            }
        }
        let mut app_facts =
            Self { policy, app, touches: vec![], activations: vec![], effects: vec![] };
        for fact in canonical.into_values() {
            match fact {
                Fact::Touch(touch) => app_facts.touches.push(touch),
                Fact::Activation(activation) => app_facts.activations.push(activation),
                Fact::Effect(effect) => app_facts.effects.push(effect),
            }
        }
        app_facts.activations.sort_by_key(|activation| (activation.time, &activation.id));
        app_facts
    }

    /// Classifies an activation (section 2 of the contract).
    fn class(&self, activation: &Activation) -> Class<'a> {
        let is_in_chain = |member: &&&Activation| {
            member.id == activation.id || shared_id_kind(&member.ids, &activation.ids).is_some()
        };
        let mut last_install: Option<&Activation> = None;
        let mut last_non_duplicate: Option<&Activation> = None;
        for member in self.activations.iter().filter(is_in_chain) {
            let since = |earlier: &Activation| member.time.millis() - earlier.time.millis();
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
    fn credit(&self, activation: &Activation) -> Credit<'a> {
        let uncredited =
            |status, reason| Credit { status, winner: None, contributors: vec![], reason };
        let class = self.class(activation).name;
        if self.blocks(&activation.device.ip, &activation.ids) {
            return uncredited("rejected", "blocked");
        }
        if class == "duplicate" {
            return uncredited("duplicate", "-");
        }
        let mut accepted: Vec<Candidate<'a>> = self
            .touches
            .iter()
            .filter(|touch| class == "install" || touch.purpose == Purpose::Retargeting)
            .filter_map(|touch| self.candidate(touch, activation))
            .filter(|candidate| self.is_accepted(candidate.touch, activation))
            .collect();
        let strength = |candidate: &Candidate<'_>| {
            let Candidate { touch, key, tier } = candidate;
            (*tier, touch.time, rank(key), touch.id.as_bytes().to_vec())
        };
        accepted.sort_by_key(strength);
        let Some(winner) = accepted.pop() else {
            return uncredited(if class == "install" { "organic" } else { "unattributed" }, "-");
        };
        accepted.sort_by_key(|other| (other.touch.time, other.touch.id.as_bytes().to_vec()));
        let contributors = accepted.into_iter().rev().take(3).collect();
        Credit { status: "attributed", winner: Some(winner), contributors, reason: "-" }
    }

    fn candidate(&self, touch: &'a Touch, activation: &Activation) -> Option<Candidate<'a>> {
        if touch.time >= activation.time {
            return None;
        }
        let age_ms = activation.time.millis() - touch.time.millis();
        let windows = self
            .policy
            .campaign(self.app.pid, touch.spreadid)
            .map_or(self.app.windows, |campaign| campaign.windows);
        let lookback_ms = touch.lookback_ms.map(|ms| ms.min(90 * DAY_MS));
        let Windows {
            click_ms,
            click_probabilistic_ms,
            impression_ms,
            impression_probabilistic_ms,
            ..
        } = windows;
        let is_click = touch.kind == TouchKind::Click;
        let (id_window_ms, probabilistic_window_ms) = if is_click {
            (lookback_ms.unwrap_or(click_ms), click_probabilistic_ms.min(24 * HOUR_MS))
        } else {
            (
                lookback_ms.unwrap_or(impression_ms),
                lookback_ms.unwrap_or(impression_probabilistic_ms),
            )
        };
        let tier = |by_click, by_impression| if is_click { by_click } else { by_impression };
        if let Some(key) = by_id(touch, activation).filter(|_| age_ms <= id_window_ms) {
            return Some(Candidate { touch, key, tier: tier(4, 2) });
        }
        let key = probabilistic(touch, activation).filter(|_| self.app.probabilistic)?;
        (age_ms <= probabilistic_window_ms).then_some(Candidate { touch, key, tier: tier(3, 1) })
    }

    /// Applies the fraud rules (section 4).
    fn is_accepted(&self, touch: &Touch, activation: &Activation) -> bool {
        let fraud = &self.app.fraud;
        let channel = self.channel(touch);
        if fraud.allow_channels.iter().any(|id| **id == *channel)
            || fraud.allow_sites.contains(&touch.site)
        {
            return true;
        }
        if self.blocks(&touch.device.ip, &touch.ids) || fraud.block_sites.contains(&touch.site) {
            return false;
        }
        if activation.install_begin_time.is_some_and(|begin| touch.time > begin) {
            return false;
        }
        if activation.time.millis() - touch.time.millis() < fraud.ctit_min_ms {
            return false;
        }
        let clicks = self.touches.iter().filter(|click| {
            click.kind == TouchKind::Click
                && by_id(click, activation).is_some()
                && self.channel(click) == channel
                && click.time <= touch.time
                && click.time.millis() + 24 * HOUR_MS > touch.time.millis()
        });
        let max = fraud.clicks_per_device_max as usize;
        max == 0 || touch.kind != TouchKind::Click || clicks.count() <= max
    }

    fn channel(&self, touch: &Touch) -> &str {
        let campaign = self.policy.campaign(self.app.pid, touch.spreadid);
        campaign.map_or("unknown", |campaign| &campaign.channel)
    }

    fn blocks(&self, ip: &str, ids: &Pairs) -> bool {
        let fraud = &self.app.fraud;
        let ids = normalised_ids(ids);
        parse_ip(ip).is_some_and(|ip| fraud.block_ips.iter().any(|range| range.contains(ip)))
            || fraud.block_devices.iter().any(|id| ids.contains(id))
    }

    /// Returns the decision for an effect (section 6).
    fn effect(&self, effect: &Effect) -> String {
        let event = format!("{} @{} effect {}", self.app.pid.0, effect.time.millis(), effect.id);
        let inherited_from = self.activations.iter().copied().rfind(|activation| {
            let (time, of_effect) = (activation.time.millis(), effect.time.millis());
            self.class(activation).name != "duplicate"
                && shared_id_kind(&activation.ids, &effect.ids).is_some()
                && time <= of_effect + self.app.clock_skew_ms
                && of_effect.saturating_sub(time) <= self.app.effect_window_ms
        });
        let Some(activation) = inherited_from else {
            let orphan =
                Credit { status: "orphan", winner: None, contributors: vec![], reason: "-" };
            return line(&event, "-", None, &orphan);
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
        line(&event, class.name, Some(activation), &credit)
    }
}

fn line(event: &str, class: &str, activation: Option<&Activation>, credit: &Credit<'_>) -> String {
    let kind = |touch: &Touch| match touch.kind {
        TouchKind::Click => "click",
        TouchKind::Impression => "impression",
    };
    let winner = credit.winner.map_or("-  @- -".into(), |Candidate { touch, key, .. }| {
        format!("{} {} @{} {key}", kind(touch), touch.id, touch.time.millis())
    });
    let activation = activation.map_or(" @-".into(), |activation| {
        format!("{} @{}", activation.id, activation.time.millis())
    });
    let contributors: Vec<_> = credit
        .contributors
        .iter()
        .map(|Candidate { touch, key, .. }| {
            format!("{} {} @{} {key}", touch.spreadid.0, kind(touch), touch.time.millis())
        })
        .collect();
    let spreadid = credit.winner.map_or(0, |winner| winner.touch.spreadid.0);
    let contributors = contributors.join(", ");
    let Credit { status, reason, .. } = credit;
    format!(
        "{event} | {status} {class} {spreadid} | {winner} | {activation} | {reason} | {contributors}"
    )
}

/// Returns the canonical content of a fact as the contract defines it.
fn content(fact: &Fact) -> String {
    let (device, ids) = match fact {
        Fact::Touch(touch) => (&touch.device, &touch.ids),
        Fact::Activation(activation) => (&activation.device, &activation.ids),
        Fact::Effect(effect) => (&effect.device, &effect.ids),
    };
    let mut fields = BTreeMap::new();
    let empty = Pairs::new();
    let (mut params, mut props) = (&empty, &empty);
    match fact {
        Fact::Touch(touch) => {
            let is_click = touch.kind == TouchKind::Click;
            fields.insert("type", if is_click { "click" } else { "impression" }.to_owned());
            fields.insert("spreadid", touch.spreadid.0.to_string());
            let is_ua = touch.purpose == Purpose::Ua;
            fields.insert("purpose", if is_ua { "ua" } else { "retargeting" }.to_owned());
            fields.extend(touch.lookback_ms.map(|ms| ("lookback_ms", ms.to_string())));
            fields.insert("click_id", touch.click_id.to_string());
            fields.insert("site", touch.site.to_string());
            params = &touch.params;
        }
        Fact::Activation(activation) => {
            fields.insert("type", "activation".to_owned());
            let begin = activation.install_begin_time;
            fields.extend(begin.map(|time| ("install_begin_time", time.millis().to_string())));
            fields.insert("click_id", activation.click_id.to_string());
            fields.insert("app_version", activation.app_version.to_string());
            props = &activation.props;
        }
        Fact::Effect(effect) => {
            fields.insert("type", "effect".to_owned());
            fields.insert("name", effect.name.to_string());
            fields.insert("app_version", effect.app_version.to_string());
            fields.insert("revenue", effect.revenue.to_string());
            fields.insert("currency", effect.currency.to_string());
            props = &effect.props;
        }
    }
    let Device { ip, ua, model, os, os_version } = device;
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
    values.extend([ids, params, props].map(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join("\u{1e}")
    }));
    values.join("\u{1f}")
}

fn normalised_ids(received: &Pairs) -> Vec<DeviceId> {
    DeviceIds::new(received).iter().cloned().collect()
}

/// Returns the best id kind of which `a` and `b` have an equal value.
fn shared_id_kind(a: &Pairs, b: &Pairs) -> Option<&'static str> {
    let (a, b) = (normalised_ids(a), normalised_ids(b));
    let kinds = a.into_iter().filter(|id| b.contains(id)).map(|id| id.kind.name());
    // `min_by_key` keeps the first of equals: oaid, gaid, idfa.
    kinds.min_by_key(|kind| KEYS.iter().position(|key| key == kind))
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

fn by_id(touch: &Touch, activation: &Activation) -> Option<&'static str> {
    let named = device_ids::click_id(&activation.click_id);
    let is_named = named.is_some() && named == device_ids::click_id(&touch.click_id);
    if is_named { Some("click_id") } else { shared_id_kind(&touch.ids, &activation.ids) }
}

fn probabilistic(touch: &Touch, activation: &Activation) -> Option<&'static str> {
    let (touch_ids, activation_ids) = (normalised_ids(&touch.ids), normalised_ids(&activation.ids));
    let has_conflicting_id = IdKind::ALL.into_iter().any(|kind| {
        let of_kind = |ids: &[DeviceId]| -> Vec<DeviceId> {
            ids.iter().filter(|id| id.kind == kind).cloned().collect()
        };
        let (a, b) = (of_kind(&touch_ids), of_kind(&activation_ids));
        // A raw value cannot be compared with an MD5 whose raw form is unknown.
        let is_raw = |id: &DeviceId| matches!(id.value, device_ids::IdValue::Raw(_));
        let are_comparable = a.iter().any(|id| b.iter().any(|other| is_raw(id) == is_raw(other)));
        are_comparable && !a.iter().any(|id| b.contains(id))
    });
    let ip = parse_ip(&touch.device.ip)?;
    if has_conflicting_id || parse_ip(&activation.device.ip) != Some(ip) || is_shared(ip) {
        return None;
    }
    let (a, b) = (&touch.device, &activation.device);
    let model_and_os = |device: &Device| {
        let parts = [&device.model, &device.os, &device.os_version].map(|part| part.to_string());
        parts.iter().all(|part| !part.is_empty()).then_some(parts)
    };
    if model_and_os(a).is_some() && model_and_os(a) == model_and_os(b) {
        Some("ip_device")
    } else {
        (!a.ua.is_empty() && a.ua == b.ua).then_some("ip_ua")
    }
}

fn parse_ip(ip: &str) -> Option<IpAddr> {
    ip.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn is_shared(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            ip.is_loopback() || first & 0xffc0 == 0xfe80 || first & 0xfe00 == 0xfc00
        }
    }
}
