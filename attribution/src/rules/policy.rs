//! The settings that a decision depends on, validated and resolved.
//!
//! `config` builds a [`Policy`]; nothing here reads a file. Windows are resolved per campaign, so that a decision
//! looks up one struct instead of a chain of overrides.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use foldhash::fast::FixedState;
use xxhash_rust::xxh3::Xxh3Default;

use crate::facts::device_ids::DeviceId;
use crate::facts::event::{Pid, SpreadId};

pub const HOUR_MS: u64 = 3_600_000;
pub const DAY_MS: u64 = 24 * HOUR_MS;
/// Maximum of a touch's own lookback; longer ones are cut to it.
pub const LOOKBACK_MAX_MS: u64 = 90 * DAY_MS;
/// Maximum age of a touch that matches probabilistically, whatever the settings say.
pub const PROBABILISTIC_MAX_MS: u64 = DAY_MS;

/// All settings that decisions depend on.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    apps: HashMap<Pid, AppPolicy, FixedState>,
    pids: HashMap<Box<str>, Pid, FixedState>,
    campaigns: HashMap<SpreadId, Campaign, FixedState>,
    /// Per app, the longest of each window over the app and its campaigns.
    widest: HashMap<Pid, Windows, FixedState>,
    /// The channels whose touches are rejected if their signature is bad.
    signed_channels: BTreeSet<Box<str>>,
}

/// The rules of one app.
#[derive(Debug, Clone)]
pub struct AppPolicy {
    pub pid: Pid,
    pub key: Box<str>,
    /// The app's former key, if it was renamed.
    pub previous_key: Option<Box<str>>,
    pub name: Box<str>,
    /// Windows for touches whose campaign is not in the catalogue.
    pub windows: Windows,
    pub probabilistic: bool,
    pub reattribution_window_ms: u64,
    pub duplicate_within_ms: u64,
    pub clock_skew_ms: u64,
    pub effect_window_ms: u64,
    /// `None` if the horizon is off.
    pub correction_horizon_ms: Option<u64>,
    pub reinstall_effects: ReinstallEffects,
    pub fraud: Fraud,
}

/// Maximum age of a touch at the activation, by kind and match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Windows {
    pub click_ms: u64,
    pub click_probabilistic_ms: u64,
    pub impression_ms: u64,
    pub impression_probabilistic_ms: u64,
    /// The origin of each window, in the order of the fields.
    pub origins: [Origin; 4],
}

crate::named! {
    /// The level of the settings that a window comes from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Origin {
        #[default]
        Default = "default",
        /// `[attribution]`.
        AllApps = "settings",
        App = "app",
        Channel = "channel",
        Campaign = "campaign",
    }
}

/// The credit of effects of an uncredited reinstall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReinstallEffects {
    /// The credit of the install before the reinstall.
    Original,
    /// No credit: `organic`.
    Organic,
}

/// A promotion campaign of the catalogue.
#[derive(Debug, Clone)]
pub struct Campaign {
    pub spreadid: SpreadId,
    pub pid: Pid,
    pub channel: Box<str>,
    pub name: Box<str>,
    pub windows: Windows,
}

/// Rules that reject fraudulent touches.
#[derive(Debug, Clone, Default, Hash)]
pub struct Fraud {
    /// Minimum time from touch to activation; 0 disables the rule.
    pub ctit_min_ms: u64,
    /// 0 disables the rule.
    pub clicks_per_device_max: u32,
    pub block_ips: Vec<IpRange>,
    pub block_sites: Vec<Box<str>>,
    pub block_devices: Vec<DeviceId>,
    pub allow_channels: Vec<Box<str>>,
    pub allow_sites: Vec<Box<str>>,
}

/// A CIDR range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpRange {
    pub network: IpAddr,
    pub prefix_bits: u8,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            click_ms: 7 * DAY_MS,
            click_probabilistic_ms: PROBABILISTIC_MAX_MS,
            impression_ms: DAY_MS,
            impression_probabilistic_ms: 6 * HOUR_MS,
            origins: [Origin::Default; 4],
        }
    }
}

impl Windows {
    fn lengths(&self) -> [u64; 4] {
        [
            self.click_ms,
            self.click_probabilistic_ms,
            self.impression_ms,
            self.impression_probabilistic_ms,
        ]
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            click_ms: self.click_ms.max(other.click_ms),
            click_probabilistic_ms: self.click_probabilistic_ms.max(other.click_probabilistic_ms),
            impression_ms: self.impression_ms.max(other.impression_ms),
            impression_probabilistic_ms: self
                .impression_probabilistic_ms
                .max(other.impression_probabilistic_ms),
            origins: self.origins,
        }
    }
}

impl AppPolicy {
    /// Returns the contract's defaults.
    pub fn new(pid: Pid, key: &str) -> Self {
        Self {
            pid,
            key: key.into(),
            previous_key: None,
            name: key.into(),
            windows: Windows::default(),
            probabilistic: false,
            reattribution_window_ms: 90 * DAY_MS,
            duplicate_within_ms: 60_000,
            clock_skew_ms: 5 * 60_000,
            effect_window_ms: 400 * DAY_MS,
            correction_horizon_ms: Some(7 * DAY_MS),
            reinstall_effects: ReinstallEffects::Original,
            fraud: Fraud::default(),
        }
    }
}

impl Policy {
    pub fn new(apps: Vec<AppPolicy>, campaigns: Vec<Campaign>) -> Self {
        let mut widest: HashMap<Pid, Windows, FixedState> =
            apps.iter().map(|app| (app.pid, app.windows)).collect();
        for campaign in &campaigns {
            if let Some(windows) = widest.get_mut(&campaign.pid) {
                *windows = windows.max(&campaign.windows);
            }
        }
        Self {
            widest,
            pids: apps.iter().map(|app| (app.key.clone(), app.pid)).collect(),
            apps: apps.into_iter().map(|app| (app.pid, app)).collect(),
            campaigns: campaigns
                .into_iter()
                .map(|campaign| (campaign.spreadid, campaign))
                .collect(),
            signed_channels: BTreeSet::new(),
        }
    }

    /// Rejects the touches of these channels whose signature is bad.
    #[must_use]
    pub fn with_signed_channels(self, channels: impl IntoIterator<Item = Box<str>>) -> Self {
        Self { signed_channels: channels.into_iter().collect(), ..self }
    }

    pub fn is_signed_channel(&self, channel: &str) -> bool {
        self.signed_channels.contains(channel)
    }

    #[inline]
    pub fn app(&self, pid: Pid) -> Option<&AppPolicy> {
        self.apps.get(&pid)
    }

    pub fn app_by_key(&self, key: &str) -> Option<&AppPolicy> {
        self.pids.get(key).and_then(|pid| self.apps.get(pid))
    }

    /// Returns all apps, unordered.
    pub fn apps(&self) -> impl Iterator<Item = &AppPolicy> {
        self.apps.values()
    }

    /// Returns the campaign if it belongs to this app.
    #[inline]
    pub fn campaign(&self, pid: Pid, spreadid: SpreadId) -> Option<&Campaign> {
        self.campaigns.get(&spreadid).filter(|campaign| campaign.pid == pid)
    }

    /// Returns the campaign, whatever its app.
    pub fn campaign_of_any_app(&self, spreadid: SpreadId) -> Option<&Campaign> {
        self.campaigns.get(&spreadid)
    }

    /// Returns the longest of each window over the app and its campaigns.
    pub fn widest(&self, app: &AppPolicy) -> Windows {
        self.widest.get(&app.pid).copied().unwrap_or(app.windows)
    }

    /// Hashes all settings that decisions depend on. Settings with the same meaning have the same hash, whatever their
    /// notation.
    pub fn version(&self) -> u64 {
        let mut apps: Vec<_> = self.apps.values().collect();
        apps.sort_unstable_by_key(|app| app.pid);
        let mut campaigns: Vec<_> = self.campaigns.values().collect();
        campaigns.sort_unstable_by_key(|campaign| campaign.spreadid);
        let mut hasher = Xxh3Default::new();
        for app in apps {
            let times = [
                app.reattribution_window_ms,
                app.duplicate_within_ms,
                app.clock_skew_ms,
                app.effect_window_ms,
            ];
            let rules = (app.probabilistic, app.correction_horizon_ms, app.reinstall_effects);
            (app.pid, &app.key, app.windows.lengths(), times, rules).hash(&mut hasher);
            app.fraud.sorted().hash(&mut hasher);
        }
        for Campaign { spreadid, pid, channel, windows, name: _ } in campaigns {
            (spreadid, pid, channel, windows.lengths()).hash(&mut hasher);
        }
        // Settings without such channels have the version that they had before this rule existed.
        self.signed_channels.iter().for_each(|channel| channel.hash(&mut hasher));
        hasher.finish()
    }

    /// Returns all campaigns, unordered.
    pub fn campaigns(&self) -> impl Iterator<Item = &Campaign> {
        self.campaigns.values()
    }
}

impl Fraud {
    /// Sorts and deduplicates the lists, because neither order nor repetition has a meaning.
    fn sorted(&self) -> Self {
        fn sort<T: Ord>(list: &mut Vec<T>) {
            list.sort_unstable();
            list.dedup();
        }
        let mut sorted = self.clone();
        sort(&mut sorted.block_ips);
        sort(&mut sorted.block_sites);
        sort(&mut sorted.block_devices);
        sort(&mut sorted.allow_channels);
        sort(&mut sorted.allow_sites);
        sorted
    }
}

impl IpRange {
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.network, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix_bits.min(32));
                network.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix_bits.min(128));
                network.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, prefix_bits: u8, ip: &str, expected: bool) {
        let range = IpRange { network: network.parse().unwrap(), prefix_bits };
        assert_eq!(range.contains(ip.parse().unwrap()), expected);
    }

    #[test]
    fn the_version_ignores_order_and_repetition_in_lists() {
        let version = |sites: &[&str]| {
            let mut app = AppPolicy::new(Pid(1), "a");
            app.fraud.block_sites = sites.iter().map(|site| Box::from(*site)).collect();
            Policy::new(vec![app], vec![]).version()
        };
        assert_eq!(version(&["a", "b"]), version(&["b", "a", "b"]));
        assert_ne!(version(&["a", "b"]), version(&["a"]));
    }

    #[test]
    fn the_version_depends_on_signed_channels() {
        let version = |channels: &[&str]| {
            let channels = channels.iter().map(|channel| Box::from(*channel));
            Policy::default().with_signed_channels(channels).version()
        };
        assert_eq!(version(&["a", "b"]), version(&["b", "a", "b"]));
        assert_ne!(version(&["a", "b"]), version(&["a"]));
        assert_eq!(version(&[]), Policy::default().version());
    }

    #[test]
    fn ranges_contain_their_addresses() {
        check("100.64.0.0", 10, "100.127.255.255", true);
        check("100.64.0.0", 10, "100.128.0.0", false);
        check("0.0.0.0", 0, "255.1.2.3", true);
        check("10.0.0.1", 32, "10.0.0.2", false);
        check("fe80::", 10, "febf::1", true);
        check("fe80::", 10, "fec0::1", false);
        check("::", 0, "1.2.3.4", false);
    }
}
