//! `adtrail explain`: why an activation is credited as it is, in the store of the service or
//! among the events of files.

use std::ops::ControlFlow;

use anyhow::bail;
use attribution::explain::collect;
use attribution::facts::event::{Effect, Family, TouchKind};
use attribution::facts::match_keys::fact_key;
use attribution::facts::printable::printable;
use attribution::ledger::Facts;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::AppPolicy;
use attribution::rules::row::EventType;
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::reader::Reader;

use super::replay::Replica;
use super::{known_app, load, print};
use crate::cli::Explain;

pub fn run(options: &Explain) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let replica = match &*options.events {
        [] => None,
        events => Some(Replica::of_files(&config, events)?.0),
    };
    let mut reader = match &replica {
        Some(replica) => replica.reader.clone(),
        None => store::open_for_reading(&config.store, &config.policy)?,
    };
    let id = &options.activation;
    let Some(explanation) = collect::explain(&mut reader, &config.policy, app.pid, id)? else {
        let namesake = namesake(&mut reader, app, id)?;
        let id = printable(id);
        bail!("--activation: {} has no activation with this event_id: {id}{namesake}", app.key);
    };
    let text = if options.json {
        format!("{:#}\n", export::explain::json(&explanation, &config.policy))
    } else {
        export::explain::text(&explanation, &config.policy)
    };
    print(text.as_bytes())
}

/// What else has this id, for whoever took it for an activation's; empty if nothing has.
fn namesake(reader: &mut Reader, app: &AppPolicy, id: &str) -> Result<String, StoreError> {
    let keys = [Family::Effect, Family::Touch].map(|family| fact_key(family, app.pid, id));
    let record = reader.records(&keys)?.into_iter().flatten().find(|record| record.id() == id);
    Ok(match record {
        Some(FactRecord::Effect(effect)) => {
            let activation = activation_of(reader, app, &effect.fact)?;
            let of = activation
                .map(|id| format!(" of activation {}", printable(&id)))
                .unwrap_or_default();
            format!("; it is that of an effect{of}")
        }
        Some(FactRecord::Touch(touch)) => match touch.kind {
            TouchKind::Click => "; it is the click_id of a click".into(),
            TouchKind::Impression => "; it is the click_id of an impression".into(),
        },
        Some(FactRecord::Activation(_)) | None => String::new(),
    })
}

/// The activation that the effect's row names.
fn activation_of(
    reader: &Reader,
    app: &AppPolicy,
    effect: &Effect,
) -> Result<Option<String>, StoreError> {
    let mut outcome = Ok(None);
    reader.scan_rows(app, effect.time, effect.time.plus(1), |_, value| {
        outcome = RowView::decode(value).map(|row| {
            let is_its =
                row.event_type == EventType::Effect && row.text(TextCell::EventId) == &*effect.id;
            is_its.then(|| row.text(TextCell::ActivationId).to_owned())
        });
        if let Ok(None) = outcome { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome.map(|id| id.filter(|id| !id.is_empty()))
}
