//! `adtrail catalogue`: lists the campaigns that events name and the settings do not have, and takes them over.

mod adopt;
mod entries;
mod sightings;

use std::collections::BTreeSet;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;
use config::Config;
use serde_json::{Value, json};

use super::{known_app, load, require_apps, utc, write_line};
use crate::cli::{Catalogue, Settings, UnknownCampaigns};
use crate::counted::counted;
use crate::telemetry::{self, write_stderr};
use sightings::{Sighting, Sightings};

const BAR: &str = "{spinner} {human_pos} clicks and impressions of unknown campaigns, {elapsed}";
/// Touches between two updates of the progress bar.
const TOUCHES_PER_UPDATE: u64 = 10_000;

pub fn run(command: &Catalogue) -> anyhow::Result<()> {
    match command {
        Catalogue::Unknown(options) => list(options),
        Catalogue::Adopt(options) => adopt::run(options),
    }
}

fn list(options: &UnknownCampaigns) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let found = find(&config, &options.settings, options.app.as_deref())?;
    for ((pid, spreadid), sighting) in &found.campaigns {
        write_line(&line(&config.policy, *pid, *spreadid, sighting))?;
    }
    Ok(())
}

/// Finds the campaigns that events name and the settings do not have, of one app or of all.
fn find(config: &Config, settings: &Settings, app: Option<&str>) -> anyhow::Result<Sightings> {
    let pids: BTreeSet<Pid> = match app {
        Some(key) => BTreeSet::from([known_app(config, settings, key)?.pid]),
        None => {
            require_apps(config, settings)?;
            config.policy.apps().map(|app| app.pid).collect()
        }
    };
    let reader = store::open_for_reading(&config.store, &config.policy)?;
    let bar = telemetry::bar(None, BAR);
    let found = Sightings::read(&reader, &config.policy, &pids, |touches| {
        if touches.is_multiple_of(TOUCHES_PER_UPDATE) {
            bar.set_position(touches);
        }
    })?;
    drop(bar);
    if found.left_out > 0 {
        let known = counted(found.campaigns.len(), "campaign");
        let left_out = found.left_out;
        write_stderr(format_args!(
            "There are more than {known}; {left_out} events of others are not counted.\n"
        ));
    }
    Ok(found)
}

fn line(
    policy: &Policy,
    Pid(pid): Pid,
    SpreadId(spreadid): SpreadId,
    sighting: &Sighting,
) -> Value {
    json!({
        "spreadid": spreadid,
        "app": policy.app(Pid(pid)).map(|app| &*app.key),
        "channel": sighting.channel(),
        "name": sighting.name(),
        "clicks": sighting.clicks,
        "impressions": sighting.impressions,
        "activations": sighting.activations,
        "effects": sighting.effects,
        "first_seen": sighting.seen.map(|(first, _)| utc(first)),
        "last_seen": sighting.seen.map(|(_, last)| utc(last)),
    })
}
