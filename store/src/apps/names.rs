//! The app key of each pid. Rows and facts contain the pid only, so a pid that is reused for another app would expose
//! the rows of the first one.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::StoreError;
use crate::layout::key;

/// The keys of all apps that a store has ever had.
pub type Names = BTreeMap<Pid, Box<str>>;

/// Checks that each pid belongs to the same app in the settings and in the store. Returns the new and the renamed apps.
///
/// # Errors
/// If an app would be shown the rows of another one, or would not find its own.
pub fn check_app_ids<'a>(
    names: &Names,
    policy: &'a Policy,
) -> Result<Vec<(Pid, &'a str)>, StoreError> {
    let mut changed = Vec::new();
    for app in policy.apps() {
        match names.get(&app.pid) {
            Some(stored) if *stored == app.key => continue,
            Some(stored) if Some(stored) != app.previous_key.as_ref() => {
                let (pid, had, key) = (app.pid, stored.clone(), app.key.clone());
                return Err(StoreError::AppMismatch { pid, had, key });
            }
            Some(_) => {}
            None => check_new_app(names, policy, app)?,
        }
        changed.push((app.pid, &*app.key));
    }
    Ok(changed)
}

/// Checks that a new app's key is not that of another pid, unless the app with that pid was renamed.
fn check_new_app(names: &Names, policy: &Policy, app: &AppPolicy) -> Result<(), StoreError> {
    let Some((had, _)) = names.iter().find(|(_, name)| **name == app.key) else { return Ok(()) };
    let was_renamed =
        policy.app(*had).is_some_and(|other| other.previous_key.as_ref() == Some(&app.key));
    let (key, had, pid) = (app.key.clone(), *had, app.pid);
    if was_renamed { Ok(()) } else { Err(StoreError::PidMismatch { key, had, pid }) }
}

/// Decodes a stored name and the pid of its key.
pub fn decode(pid: &[u8], name: &[u8]) -> Result<(Pid, Box<str>), StoreError> {
    let damage = || StoreError::corrupt("the key of an app");
    let pid = key::decode_pid(pid).ok_or_else(damage)?;
    let name = std::str::from_utf8(name).map_err(|_| damage())?;
    Ok((pid, name.into()))
}
