//! The ids of channels and apps, to check references from other tables.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;
use attribution::rules::policy::Windows;

use super::attribution_rules;
use crate::nearest;
use crate::parse::error::Problem;

/// The channels by id, with the windows that each sets.
pub(crate) struct Channels {
    pub windows: BTreeMap<Box<str>, attribution_rules::WindowOverrides>,
    pub complete: bool,
}

/// The windows of each app by pid.
pub(crate) struct Apps {
    pub windows: BTreeMap<Pid, Windows>,
    pub complete: bool,
}

impl Channels {
    /// Checks that a channel exists. If a channel is invalid, accepts any id, so that one mistake is not reported
    /// twice.
    pub fn parse(&self, id: &str) -> Result<Box<str>, Problem> {
        if self.windows.contains_key(id) || !self.complete {
            return Ok(id.into());
        }
        let known = self.windows.keys().map(|known| &**known);
        Err(nearest::expected("the id of one of the [[channels]]", id, known))
    }
}

impl Apps {
    /// Describes the valid pids of a campaign, with the first known ones as examples.
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
