//! The name of a campaign's channel.

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;

/// The channel of a campaign that the settings do not have.
pub(crate) const UNKNOWN_CHANNEL: &str = "unknown";

/// Returns the channel of a campaign, as every export shows it.
pub(crate) fn channel_name(policy: &Policy, pid: Pid, spreadid: SpreadId) -> &str {
    match policy.campaign(pid, spreadid) {
        Some(campaign) => &campaign.channel,
        None if spreadid.0 == 0 => "",
        None => UNKNOWN_CHANNEL,
    }
}
