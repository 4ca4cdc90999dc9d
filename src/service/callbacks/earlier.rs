//! Finds the effects that precede another one, for endpoints that want the first of each activation or window only.

use std::collections::BTreeSet;

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{Effect, EventTime, Family};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::{by_id, fact_key};
use attribution::ledger::Facts;
use attribution::ledger::index::Scan;
use attribution::ledger::record::FactRecord;
use attribution::rules::inherit;
use attribution::rules::policy::AppPolicy;
use attribution::rules::row::EventType;
use callback::Earlier;
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::reader::Reader;

use super::decided::{Decided, millis};

const ENTRIES_PER_READ: usize = 1_000;
/// No device has as many effects during an activation. Further ones are not looked at.
const EFFECTS_MAX: usize = 10_000;

/// Returns the effects of the same name of the same activation that precede an effect; none of an activation.
pub fn earlier_effects(
    reader: &mut Reader,
    app: &AppPolicy,
    decided: &Decided,
) -> Result<Vec<Earlier>, StoreError> {
    let FactRecord::Effect(record) = &decided.record else { return Ok(Vec::new()) };
    let (effect, row) = (&record.fact, decided.row()?);
    let activation_id = row.text(TextCell::ActivationId);
    let activation = fact_key(EventType::Activation, app.pid, activation_id);
    let activation = reader.records(&[activation])?.pop().flatten();
    let Some(activation) = activation else { return Ok(Vec::new()) };
    let (oldest, _) = inherit::effect_times(app, activation.time());
    let mut found = Vec::new();
    let mut keys = Vec::new();
    for key in effects_since(reader, effect, &activation.device_ids(), oldest)? {
        keys.push(key);
        if keys.len() == ENTRIES_PER_READ {
            add(&mut found, reader, effect, activation_id, &std::mem::take(&mut keys))?;
        }
    }
    add(&mut found, reader, effect, activation_id, &keys)?;
    Ok(found)
}

/// Returns the effects with an id of the activation, up to the time of this one.
fn effects_since(
    reader: &mut Reader,
    effect: &Effect,
    ids: &DeviceIds,
    oldest: EventTime,
) -> Result<BTreeSet<FactKey>, StoreError> {
    let mut found = BTreeSet::new();
    for id in ids.iter() {
        let mut scan = Scan {
            family: Family::Effect,
            key: by_id(id),
            pid: effect.pid,
            oldest,
            newest: effect.time,
            after: None,
            limit: ENTRIES_PER_READ,
        };
        loop {
            let page = reader.scan(&[scan])?.pop().unwrap_or_default();
            found.extend(page.iter().map(|entry| entry.fact));
            if page.len() < ENTRIES_PER_READ || found.len() >= EFFECTS_MAX {
                break;
            }
            scan.after = page.last().copied();
        }
    }
    found.remove(&fact_key(EventType::Effect, effect.pid, &effect.id));
    Ok(found)
}

/// Adds those of the effects that precede this one.
fn add(
    found: &mut Vec<Earlier>,
    reader: &mut Reader,
    effect: &Effect,
    activation_id: &str,
    keys: &[FactKey],
) -> Result<(), StoreError> {
    let is_earlier = |record: &FactRecord| match record {
        FactRecord::Effect(other) => {
            let other = &other.fact;
            other.name == effect.name && (other.time, &other.id) < (effect.time, &effect.id)
        }
        FactRecord::Touch(_) | FactRecord::Activation(_) => false,
    };
    let records = keys.iter().copied().zip(reader.records(keys)?);
    let records = records.filter_map(|(key, record)| Some((key, record.filter(is_earlier)?)));
    let records: Vec<(FactKey, FactRecord)> = records.collect();
    for ((_, record), row) in records.iter().zip(reader.current_rows(&records)?) {
        let (Some(row), FactRecord::Effect(other)) = (row, record) else { continue };
        if RowView::decode(&row)?.text(TextCell::ActivationId) == activation_id {
            let (time_ms, revenue) = (millis(other.fact.time), other.fact.revenue.clone());
            found.push(Earlier { time_ms, revenue });
        }
    }
    Ok(())
}
