//! Two apps, some campaigns, and the settings of the contract's cases.

use std::sync::Arc;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, HOUR_MS, Policy, Windows};

pub const X: Pid = Pid(1);
pub const Y: Pid = Pid(2);
/// A campaign with narrow windows: 2 h for clicks by id, 1 h for everything else.
pub const NARROW: u32 = 30;
/// A campaign with wider windows than its app: 30 days for clicks by id, 48 h for everything else.
pub const WIDE: u32 = 31;
/// A campaign of app X on a different channel from campaigns 1 to 9, which enforces signatures.
pub const OTHER_CHANNEL: u32 = 32;

pub fn app_key(pid: Pid) -> &'static str {
    if pid == X { "app-x" } else { "app-y" }
}

/// Returns both apps, in export order.
pub fn apps() -> [AppPolicy; 2] {
    [X, Y].map(|pid| AppPolicy::new(pid, app_key(pid)))
}

/// Returns the settings of the contract's cases.
pub fn rules() -> Arc<Policy> {
    rules_with(|_| {})
}

/// Returns the settings of the contract's cases, with changes to app X.
pub fn rules_with(change: impl FnOnce(&mut AppPolicy)) -> Arc<Policy> {
    let [mut x, y] = apps();
    x.probabilistic = true;
    x.fraud.ctit_min_ms = 10_000;
    x.fraud.clicks_per_device_max = 50;
    change(&mut x);
    let mut campaigns: Vec<Campaign> =
        (1..=9).map(|spreadid| campaign(spreadid, "ads", x.windows)).collect();
    campaigns.push(campaign(NARROW, "ads", windows(2, 1)));
    campaigns.push(campaign(WIDE, "ads", windows(30 * 24, 48)));
    campaigns.push(campaign(OTHER_CHANNEL, "other", x.windows));
    Arc::new(Policy::new(vec![x, y], campaigns).with_signed_channels(["other".into()]))
}

fn campaign(spreadid: u32, channel: &str, windows: Windows) -> Campaign {
    let spreadid = SpreadId(spreadid);
    Campaign { spreadid, pid: X, channel: channel.into(), name: "".into(), windows }
}

fn windows(click_hours: u64, other_hours: u64) -> Windows {
    Windows {
        click_ms: click_hours * HOUR_MS,
        click_probabilistic_ms: other_hours * HOUR_MS,
        impression_ms: other_hours * HOUR_MS,
        impression_probabilistic_ms: other_hours * HOUR_MS,
        ..Windows::default()
    }
}
