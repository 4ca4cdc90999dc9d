//! The cells of campaigns: names of the catalogue, looked up and quoted once for many rows.

use attribution::event::{Pid, SpreadId};
use attribution::policy::Policy;

use crate::csv::{channel_name, write_text};

/// Campaigns whose cells are kept, each at the place of its number, modulo.
const CAMPAIGNS_KEPT: usize = 256;

#[derive(Debug)]
pub(crate) struct CampaignCells<'a> {
    policy: &'a Policy,
    kept: Vec<Kept>,
}

/// The cells of one campaign of an app, or of none yet.
#[derive(Debug, Clone, Default)]
struct Kept {
    campaign: Option<(Pid, SpreadId)>,
    name: Vec<u8>,
    channel: Vec<u8>,
}

impl<'a> CampaignCells<'a> {
    pub fn new(policy: &'a Policy) -> Self {
        Self { policy, kept: vec![Kept::default(); CAMPAIGNS_KEPT] }
    }

    #[inline]
    pub fn name(&mut self, pid: Pid, spreadid: SpreadId) -> &[u8] {
        &self.of(pid, spreadid).name
    }

    #[inline]
    pub fn channel(&mut self, pid: Pid, spreadid: SpreadId) -> &[u8] {
        &self.of(pid, spreadid).channel
    }

    #[inline]
    fn of(&mut self, pid: Pid, spreadid: SpreadId) -> &Kept {
        let kept = &mut self.kept[spreadid.0 as usize % CAMPAIGNS_KEPT];
        if kept.campaign != Some((pid, spreadid)) {
            kept.set(self.policy, pid, spreadid);
        }
        kept
    }
}

impl Kept {
    fn set(&mut self, policy: &Policy, pid: Pid, spreadid: SpreadId) {
        self.campaign = Some((pid, spreadid));
        self.name.clear();
        self.channel.clear();
        let name = policy.campaign(pid, spreadid).map_or("", |campaign| &campaign.name);
        write_text(name, &mut self.name);
        write_text(channel_name(policy, pid, spreadid), &mut self.channel);
    }
}

#[cfg(test)]
mod tests {
    use attribution::policy::{Campaign, Windows};

    use super::*;

    fn campaign(spreadid: u32, name: &str) -> Campaign {
        Campaign {
            spreadid: SpreadId(spreadid),
            pid: Pid(1),
            channel: "a,b".into(),
            name: name.into(),
            windows: Windows::default(),
        }
    }

    #[test]
    fn campaigns_at_one_place_keep_apart() {
        const OTHER: u32 = 7 + CAMPAIGNS_KEPT as u32;
        let campaigns = vec![campaign(7, "Spring"), campaign(OTHER, "\"")];
        let policy = Policy::new(vec![], campaigns);
        let mut cells = CampaignCells::new(&policy);
        let mut check = |pid, spreadid, name: &str, channel: &str| {
            let (pid, spreadid) = (Pid(pid), SpreadId(spreadid));
            assert_eq!(cells.name(pid, spreadid), name.as_bytes());
            assert_eq!(cells.channel(pid, spreadid), channel.as_bytes());
        };
        for _ in 0..2 {
            check(1, 7, "Spring", "\"a,b\"");
            check(1, OTHER, "\"\"\"\"", "\"a,b\"");
            check(2, 7, "", "unknown");
            check(1, OTHER + CAMPAIGNS_KEPT as u32, "", "unknown");
        }
        check(1, 0, "", "");
    }
}
