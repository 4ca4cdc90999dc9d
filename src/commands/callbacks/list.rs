//! `adtrail callbacks list` and `show`.

use anyhow::bail;
use attribution::facts::keys::FactKey;
use attribution::facts::printable::printable;
use attribution::ledger::Facts;
use attribution::ledger::record::FactRecord;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{EndpointId, EntryState, OutboxEntry, Tally};
use attribution::rules::policy::Policy;
use config::Config;
use serde_json::{Value, json};
use store::StoreError;
use store::reader::Reader;

use super::{filter, pid, require_known};
use crate::cli::{ListCallbacks, ShowCallbacks};
use crate::commands::{load, print, utc, write_line};
use crate::service::callbacks::selection::Selection;

/// Number of callbacks that are read at once.
const ENTRIES_PER_READ: usize = 500;

pub fn list(options: &ListCallbacks) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let selection = Selection {
        endpoint: options.endpoint.clone(),
        pid: pid(&config, &options.settings, options.app.as_deref())?,
        kind: options.kind.clone(),
        state: options.state.clone(),
        ..Selection::default()
    };
    let filter = filter(&selection)?;
    let mut reader = open(&config)?;
    let mut outbox = reader.outbox();
    if let Some(name) = &options.endpoint {
        require_known(&config, &mut outbox, name)?;
    }
    if options.counts {
        for (endpoint, tally) in outbox.counts()? {
            if filter.endpoint.as_ref().is_none_or(|chosen| *chosen == endpoint) {
                write_line(&counts(&endpoint, &tally))?;
            }
        }
        return Ok(());
    }
    let (mut after, mut left) = (None, options.limit);
    while left > 0 {
        let part = outbox.list(&filter, after, left.min(ENTRIES_PER_READ))?;
        let entries = part.entries.get(..left.min(part.entries.len())).unwrap_or_default();
        for line in lines(&mut reader, &config.policy, entries)? {
            write_line(&line)?;
        }
        left -= entries.len();
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

pub fn show(options: &ShowCallbacks) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let selection = Selection {
        pid: pid(&config, &options.settings, Some(&options.app))?,
        activation: options.event.activation.clone(),
        effect: options.event.effect.clone(),
        ..Selection::default()
    };
    let filter = filter(&selection)?;
    let mut reader = open(&config)?;
    let event: Vec<FactKey> = filter.event.into_iter().collect();
    let record = reader.outbox().records_of(&event)?.pop().flatten();
    let Some(record) = record else {
        let id = options.event.activation.as_ref().or(options.event.effect.as_ref());
        let id = id.map(|id| printable(id)).unwrap_or_default();
        bail!("{}: there is no callback about this event: {id}", options.app);
    };
    let entries: Vec<_> = record.entries.into_iter().map(|entry| (record.event, entry)).collect();
    let mut shown = lines(&mut reader, &config.policy, &entries)?;
    for (line, (_, entry)) in shown.iter_mut().zip(&entries) {
        line["last_attempt"] = entry.note.lines().collect::<Vec<_>>().into();
    }
    print(format!("{:#}\n", Value::from(shown)).as_bytes())
}

fn open(config: &Config) -> Result<Reader, StoreError> {
    store::open_for_reading(&config.store, &config.policy)
}

fn counts(endpoint: &EndpointId, tally: &Tally) -> Value {
    let mut line = json!({"endpoint": endpoint.as_str(), "made": tally.made});
    line[EntryState::Pending.name()] = tally.pending().into();
    line[EntryState::Sent.name()] = tally.sent.into();
    line[EntryState::Dropped.name()] = tally.dropped.into();
    line[EntryState::Withheld.name()] = tally.withheld.into();
    line[EntryState::TooOld.name()] = tally.too_old.into();
    line[EntryState::Dead.name()] = tally.dead.into();
    line
}

/// Returns a line for each callback.
fn lines(
    reader: &mut Reader,
    policy: &Policy,
    entries: &[(FactKey, OutboxEntry)],
) -> Result<Vec<Value>, StoreError> {
    let events: Vec<FactKey> = entries.iter().map(|(event, _)| *event).collect();
    let records = reader.records(&events)?;
    let lines = entries.iter().zip(records).map(|((event, entry), record)| {
        let is_pending = entry.is_pending();
        json!({
            "endpoint": entry.endpoint.as_str(),
            "app": policy.app(event.pid).map(|app| &*app.key),
            "event_type": event.family.name(),
            "event_id": record.as_ref().map(FactRecord::id),
            "event_time": record.as_ref().map(|record| utc(record.time())),
            "kind": entry.kind.name(),
            "state": entry.state.name(),
            "attempts": entry.attempt,
            "due": is_pending.then(|| utc(entry.due)),
            "changed": utc(entry.changed),
            "sent": entry.sent.map(|sent| utc(sent.at)),
            "spreadid": entry.credit.spreadid.0,
            "reason": entry.note.lines().next(),
        })
    });
    Ok(lines.collect())
}
