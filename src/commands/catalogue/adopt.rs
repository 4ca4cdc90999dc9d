//! `adtrail catalogue adopt`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;
use config::{Config, Sources};

use super::entries::{Entry, added};
use super::find;
use super::sightings::{Sighting, Sightings};
use crate::cli::{AdoptCampaigns, CatalogueFormat, Settings};
use crate::commands::{UsageError, environment, load, print, unwritable};
use crate::counted::counted;
use crate::telemetry::write_stderr;

/// A campaign that is not added, and the reason.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut(SpreadId, String);

pub fn run(options: &AdoptCampaigns) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let format = match &options.out {
        Some(path) => format_of(path)?,
        None => options.format,
    };
    if let Some(channel) = &options.channel {
        require_channel(&config, channel)?;
    }
    let found = find(&config, &options.settings, options.app.as_deref())?;
    let (entries, left_out) = choose(&config, options, &found);
    for LeftOut(SpreadId(spreadid), reason) in &left_out {
        write_stderr(format_args!("campaign {spreadid} is left out: {reason}\n"));
    }
    if entries.is_empty() {
        if left_out.is_empty() {
            write_stderr(format_args!("The settings have all campaigns of the stored events.\n"));
            return Ok(());
        }
        bail!("no campaign can be added");
    }
    let Some(path) = &options.out else {
        return print(added(format, "", &entries)?.as_bytes());
    };
    add_to_file(path, format, &entries, &options.settings)?;
    let count = counted(entries.len(), "campaign");
    write_stderr(format_args!("{count} added to {}\n", path.display()));
    Ok(())
}

fn format_of(path: &Path) -> Result<CatalogueFormat, UsageError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Ok(CatalogueFormat::Toml),
        Some("csv") => Ok(CatalogueFormat::Csv),
        _ => Err(UsageError(format!("--out: expected a .toml or .csv file: {}", path.display()))),
    }
}

fn require_channel(config: &Config, channel: &str) -> Result<(), UsageError> {
    if config.channels.iter().any(|known| **known == *channel) {
        return Ok(());
    }
    let nearest = config::nearest::nearest(channel, config.channels.iter().map(|known| &**known));
    let nearest =
        nearest.map_or("but none is defined".to_owned(), |id| format!("the nearest is {id:?}"));
    Err(UsageError(format!(
        "--channel: expected the id of one of the [[channels]], {nearest}: {channel:?}"
    )))
}

/// Returns the campaigns that can be added, and those that cannot.
fn choose(
    config: &Config,
    options: &AdoptCampaigns,
    found: &Sightings,
) -> (Vec<Entry>, Vec<LeftOut>) {
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    let mut apps: BTreeMap<SpreadId, usize> = BTreeMap::new();
    for (_, spreadid) in found.campaigns.keys() {
        *apps.entry(*spreadid).or_default() += 1;
    }
    for ((pid, spreadid), sighting) in &found.campaigns {
        if !options.spreadids.is_empty() && !options.spreadids.contains(&spreadid.0) {
            continue;
        }
        let is_of_several = apps.get(spreadid).is_some_and(|count| *count > 1);
        let channel = channel(config, options, sighting);
        let channel = refuse_other_app(&config.policy, *spreadid, is_of_several).and(channel);
        match channel {
            Ok(channel) => entries.push(entry(*pid, *spreadid, channel, sighting)),
            Err(reason) => left_out.push(LeftOut(*spreadid, reason)),
        }
    }
    for spreadid in options.spreadids.iter().map(|spreadid| SpreadId(*spreadid)) {
        if !apps.contains_key(&spreadid) {
            let reason = match config.policy.campaign_of_any_app(spreadid) {
                Some(_) => "the settings have it",
                None => "no stored event names it",
            };
            left_out.push(LeftOut(spreadid, reason.to_owned()));
        }
    }
    (entries, left_out)
}

fn entry(pid: Pid, spreadid: SpreadId, channel: &str, sighting: &Sighting) -> Entry {
    let name = sighting.name().unwrap_or_default().into();
    Entry { spreadid: spreadid.0, pid: pid.0, channel: channel.into(), name }
}

/// A campaign has one app: events of another one that name it are probably a mistake.
fn refuse_other_app(
    policy: &Policy,
    spreadid: SpreadId,
    is_of_several: bool,
) -> Result<(), String> {
    if let Some(known) = policy.campaign_of_any_app(spreadid) {
        let key = policy.app(known.pid).map_or("another app", |app| &app.key);
        return Err(format!("the settings have it for {key}"));
    }
    if is_of_several {
        return Err("events of several apps name it: choose one with --app".to_owned());
    }
    Ok(())
}

fn channel<'c>(
    config: &Config,
    options: &'c AdoptCampaigns,
    sighting: &'c Sighting,
) -> Result<&'c str, String> {
    match (sighting.channel(), &options.channel) {
        (Some(channel), _) if config.channels.iter().any(|known| **known == *channel) => {
            Ok(channel)
        }
        (_, Some(channel)) => Ok(channel),
        (Some(channel), None) => Err(format!(
            "the settings do not have its channel {channel:?}: name another one with --channel"
        )),
        (None, None) => Err("its events do not say its channel: name it with --channel".to_owned()),
    }
}

/// Adds the entries to the end of a file, once the settings are valid with them.
fn add_to_file(
    path: &Path,
    format: CatalogueFormat,
    entries: &[Entry],
    settings: &Settings,
) -> anyhow::Result<()> {
    let unreadable = || format!("cannot be read: {}", path.display());
    let known = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(unreadable),
    };
    let file = known.as_deref().unwrap_or_default();
    let more = added(format, file, entries)?;
    let sources = Sources {
        file: settings.config.as_deref(),
        environment: environment()?,
        flags: settings.set.clone(),
    };
    config::load_with_file(&sources, path, &format!("{file}{more}"))
        .map_err(|errors| UsageError(format!("nothing is written: {errors}")))?;
    // The file is appended to, not replaced, so that it keeps its owner and its rights.
    let mut open = OpenOptions::new();
    let open = if known.is_some() { open.append(true) } else { open.write(true).create_new(true) };
    let mut out = open.open(path).with_context(|| unwritable(path))?;
    if out.metadata().with_context(unreadable)?.len() != file.len() as u64 {
        let path = path.display();
        bail!("nothing is written: {path} has changed meanwhile; run the command again");
    }
    let written = append(&mut out, &more);
    if written.is_err() && known.is_none() {
        // The next reload would refuse an empty file.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| unwritable(path))
}

/// Appends the text, or leaves the file as it was.
fn append(file: &mut File, text: &str) -> io::Result<()> {
    let len = file.metadata()?.len();
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        file.set_len(len)?;
    }
    written
}
