//! The ids of channels and apps, to check references from other tables.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;
use attribution::rules::policy::Windows;

use super::attribution_rules;
use crate::nearest;
use crate::parse::error::Problem;

/// The windows that each channel sets, by the channel's id.
pub(crate) struct Channels {
    pub windows: BTreeMap<Box<str>, attribution_rules::WindowOverrides>,
    /// False if an invalid channel was left out.
    pub complete: bool,
}

/// The windows of each app by pid.
pub(crate) struct Apps {
    pub windows: BTreeMap<Pid, Windows>,
    /// False if an invalid app was left out.
    pub complete: bool,
}

impl Channels {
    /// Checks that a channel exists. If `complete` is false, accepts any id: the channel may be the invalid one, whose
    /// error is already reported.
    pub fn parse(&self, id: &str) -> Result<Box<str>, Problem> {
        if self.windows.contains_key(id) || !self.complete {
            return Ok(id.into());
        }
        let known = self.windows.keys().map(|known| &**known);
        Err(nearest::unknown_name("the id of one of the [[channels]]", id, known))
    }
}

impl Apps {
    /// Describes the valid pids of a campaign, with a few of them as examples.
    pub fn expected(&self) -> String {
        const SHOWN_MAX: usize = 8;
        let pids: Vec<_> = self.windows.keys().map(|Pid(pid)| pid.to_string()).collect();
        let which = match pids.len() {
            0 => "but none is defined".into(),
            1..=SHOWN_MAX => format!("which is {}", pids.join(" or ")),
            _ => format!("such as {}", pids[..SHOWN_MAX].join(", ")),
        };
        format!("expected the pid of one of the [[apps]], {which}")
    }
}
