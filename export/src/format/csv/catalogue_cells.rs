//! Cells of apps and campaigns: names of the catalogue, looked up and quoted once for many rows.

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;

use super::cell::Cell;
use crate::format::columns::channel::channel_name;

/// Size of the cache of campaigns, indexed by spreadid modulo this.
const CAMPAIGNS_CACHED: usize = 256;

#[derive(Debug)]
pub(crate) struct CampaignCells<'a> {
    policy: &'a Policy,
    cached: Vec<(Option<(Pid, SpreadId)>, CampaignCell)>,
}

/// The cells of one campaign of an app.
#[derive(Debug, Clone, Default)]
pub(crate) struct CampaignCell {
    pub spreadid: Cell,
    pub name: Cell,
    pub channel: Cell,
}

impl<'a> CampaignCells<'a> {
    pub fn new(policy: &'a Policy) -> Self {
        Self { policy, cached: vec![Default::default(); CAMPAIGNS_CACHED] }
    }

    #[inline]
    pub fn of(&mut self, pid: Pid, spreadid: SpreadId) -> &CampaignCell {
        let (campaign, cells) = &mut self.cached[spreadid.0 as usize % CAMPAIGNS_CACHED];
        if *campaign != Some((pid, spreadid)) {
            *campaign = Some((pid, spreadid));
            *cells = CampaignCell::new(self.policy, pid, spreadid);
        }
        cells
    }
}

impl CampaignCell {
    #[cold]
    fn new(policy: &Policy, pid: Pid, spreadid: SpreadId) -> Self {
        let name = policy.campaign(pid, spreadid).map_or("", |campaign| &campaign.name);
        Self {
            spreadid: Cell::new(&spreadid.0.to_string()),
            name: Cell::new(name),
            channel: Cell::new(channel_name(policy, pid, spreadid)),
        }
    }
}

/// The cells of the app whose rows are being written.
#[derive(Debug)]
pub(crate) struct AppCells<'a> {
    policy: &'a Policy,
    cached: (Option<Pid>, AppCell),
}

#[derive(Debug, Default)]
pub(crate) struct AppCell {
    pub key: Cell,
    pub pid: Cell,
}

impl<'a> AppCells<'a> {
    pub fn new(policy: &'a Policy) -> Self {
        Self { policy, cached: Default::default() }
    }

    #[inline]
    pub fn of(&mut self, pid: Pid) -> &AppCell {
        let (app, cells) = &mut self.cached;
        if *app != Some(pid) {
            *app = Some(pid);
            *cells = AppCell::new(self.policy, pid);
        }
        cells
    }
}

impl AppCell {
    #[cold]
    fn new(policy: &Policy, pid: Pid) -> Self {
        let key = policy.app(pid).map_or("", |app| &app.key);
        Self { key: Cell::new(key), pid: Cell::new(&pid.0.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use attribution::rules::policy::{Campaign, Windows};

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
    fn campaigns_with_one_cache_index_do_not_mix() {
        const OTHER: u32 = 7 + CAMPAIGNS_CACHED as u32;
        let campaigns = vec![campaign(7, "Spring"), campaign(OTHER, "\"")];
        let policy = Policy::new(vec![], campaigns);
        let mut cells = CampaignCells::new(&policy);
        let mut check = |pid, spreadid, name: &str, channel: &str| {
            let (pid, spreadid) = (Pid(pid), SpreadId(spreadid));
            let (mut line, cells) = (Vec::new(), cells.of(pid, spreadid));
            for cell in [&cells.spreadid, &cells.name, &cells.channel] {
                cell.write(&mut line);
                line.push(b' ');
            }
            assert_eq!(line, format!("{} {name} {channel} ", spreadid.0).as_bytes());
        };
        for _ in 0..2 {
            check(1, 7, "Spring", "\"a,b\"");
            check(1, OTHER, "\"\"\"\"", "\"a,b\"");
            check(2, 7, "", "unknown");
            check(1, OTHER + CAMPAIGNS_CACHED as u32, "", "unknown");
        }
        check(1, 0, "", "");
    }
}
