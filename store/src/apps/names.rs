//! Which app each pid is of. Rows and facts have the pid alone: one that is given to another app would show
//! it the first one's.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::StoreError;

/// The keys of the apps that a store has had.
pub type Names = BTreeMap<Pid, Box<str>>;

/// That the settings mean the same apps by their pids. Gives those that the store has not had, or had
/// under the keys that they say they had.
///
/// # Errors
/// Where an app would be shown another's rows, or not find its own.
pub fn require<'a>(names: &Names, policy: &'a Policy) -> Result<Vec<(Pid, &'a str)>, StoreError> {
    let mut news = Vec::new();
    for app in policy.apps() {
        match names.get(&app.pid) {
            Some(had) if *had == app.key => continue,
            Some(had) if Some(had) != app.previous_key.as_ref() => return Err(other_app(app, had)),
            Some(_) => {}
            None => require_moved(names, policy, app)?,
        }
        news.push((app.pid, &*app.key));
    }
    Ok(news)
}

fn other_app(AppPolicy { pid, key, .. }: &AppPolicy, had: &str) -> StoreError {
    StoreError::OtherApp { pid: *pid, had: had.into(), key: key.clone() }
}

/// That no other pid is the app's. It is free where the app that has it says that it was renamed.
fn require_moved(names: &Names, policy: &Policy, app: &AppPolicy) -> Result<(), StoreError> {
    let Some((had, _)) = names.iter().find(|(_, name)| **name == app.key) else { return Ok(()) };
    let was_renamed =
        policy.app(*had).is_some_and(|other| other.previous_key.as_ref() == Some(&app.key));
    let (key, had, pid) = (app.key.clone(), *had, app.pid);
    if was_renamed { Ok(()) } else { Err(StoreError::OtherPid { key, had, pid }) }
}

/// What is kept under the bytes of a pid.
pub fn decode(pid: &[u8], key: &[u8]) -> Result<(Pid, Box<str>), StoreError> {
    let damage = || StoreError::corrupt("the key of an app");
    let pid = pid.try_into().map(u32::from_be_bytes).map_err(|_| damage())?;
    let key = std::str::from_utf8(key).map_err(|_| damage())?;
    Ok((Pid(pid), key.into()))
}
