//! How many rows are credited to each campaign, on either side.

use std::collections::BTreeMap;
use std::io::Write;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;
use attribution::rules::row::EventType;
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::ComparedApp;
use crate::format::columns::channel::channel_name;
use crate::format::csv::cell::write_text;

const HEADER: &str = "app,spreadid,campaign,channel,old_activations,new_activations,old_effects,\
                      new_effects\n";

/// Totals of all rows, including those that do not differ.
#[derive(Debug, Default)]
pub struct Totals {
    /// Events of either side.
    pub events: u64,
    /// Events whose rows differ.
    pub differing: u64,
    /// Lines in the order of apps and campaigns.
    lines: BTreeMap<(AppOrder, SpreadId), TotalsLine>,
}

/// Apps in the order in which their rows are written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AppOrder {
    is_new: bool,
    pid: Pid,
}

/// One campaign of one app. spreadid 0 stands for rows without a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalsLine {
    pub app: Box<str>,
    pub spreadid: SpreadId,
    pids: [Option<Pid>; 2],
    pub old: Counts,
    pub new: Counts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub activations: u64,
    pub effects: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Old,
    New,
}

impl Totals {
    pub(crate) fn count(&mut self, app: &ComparedApp, side: Side, key: &RowKey, row: &RowView<'_>) {
        let pids = [&app.old, &app.new].map(|app| app.as_ref().map(|app| app.pid));
        let order = AppOrder { is_new: app.old.is_none(), pid: key_pid(pids) };
        let line = self.lines.entry((order, key.spreadid)).or_insert_with(|| TotalsLine {
            app: app.old.as_ref().or(app.new.as_ref()).map_or("".into(), |app| app.key.clone()),
            spreadid: key.spreadid,
            pids,
            old: Counts::default(),
            new: Counts::default(),
        });
        let counts = match side {
            Side::Old => &mut line.old,
            Side::New => &mut line.new,
        };
        match row.event_type {
            EventType::Activation => counts.activations += 1,
            EventType::Effect => counts.effects += 1,
        }
    }

    pub(crate) fn compared(&mut self, differs: bool) {
        self.events += 1;
        self.differing += u64::from(differs);
    }

    /// Returns the lines, by app, then spreadid.
    pub fn lines(&self) -> impl Iterator<Item = &TotalsLine> {
        self.lines.values()
    }

    /// Returns all lines as CSV, with a header.
    pub fn csv(&self, old: &Policy, new: &Policy) -> Vec<u8> {
        let mut out = HEADER.as_bytes().to_vec();
        for line in self.lines() {
            let (campaign, channel) = line.names(old, new);
            write_text(&line.app, &mut out);
            let _ = write!(out, ",{},", line.spreadid.0);
            write_text(campaign, &mut out);
            out.push(b',');
            write_text(channel, &mut out);
            let (old, new) = (line.old, line.new);
            // Writing to a vector cannot fail.
            let _ = writeln!(
                out,
                ",{},{},{},{}",
                old.activations, new.activations, old.effects, new.effects
            );
        }
        out
    }
}

impl TotalsLine {
    /// Returns the names of the campaign and its channel, from the old side if it knows the campaign.
    pub fn names<'p>(&self, old: &'p Policy, new: &'p Policy) -> (&'p str, &'p str) {
        let known = self.pids.into_iter().zip([old, new]).find_map(|(pid, policy)| {
            let campaign = policy.campaign(pid?, self.spreadid)?;
            Some((&*campaign.name, &*campaign.channel))
        });
        known.unwrap_or_else(|| ("", channel_name(old, key_pid(self.pids), self.spreadid)))
    }
}

/// Returns the app's pid, from the old side if it has the app.
fn key_pid([old, new]: [Option<Pid>; 2]) -> Pid {
    old.or(new).unwrap_or(Pid(0))
}
