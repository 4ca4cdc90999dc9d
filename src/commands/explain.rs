//! `adtrail explain`: why an activation has its attribution, from the store or from files of events.

use std::ops::ControlFlow;

use anyhow::bail;
use attribution::explain::collect;
use attribution::facts::match_keys::fact_key;
use attribution::facts::printable::printable;
use attribution::ledger::Facts;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::AppPolicy;
use attribution::rules::row::EventType;
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::reader::Reader;

use super::replay::ReplayRun;
use super::{known_app, load, print};
use crate::cli::Explain;

pub fn run(options: &Explain) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let run = match &*options.events {
        [] => None,
        events => Some(ReplayRun::from_files(&config, events)?.0),
    };
    let mut reader = match &run {
        Some(run) => run.reader.clone(),
        None => store::open_for_reading(&config.store, &config.policy)?,
    };
    let id = &options.activation;
    let Some(explanation) = collect::explain(&mut reader, &config.policy, app.pid, id)? else {
        let hint = match activation_of_effect(&mut reader, app, id)? {
            Some(activation) => {
                format!("; it is an effect of activation {}", printable(&activation))
            }
            None => String::new(),
        };
        let id = printable(id);
        bail!("--activation: {} has no activation with this event_id: {id}{hint}", app.key);
    };
    let text = if options.json {
        format!("{:#}\n", export::explain::json(&explanation, &config.policy))
    } else {
        export::explain::text(&explanation, &config.policy)
    };
    print(text.as_bytes())
}

/// Returns the activation id of the effect with this id. Users easily confuse the two ids.
fn activation_of_effect(
    reader: &mut Reader,
    app: &AppPolicy,
    id: &str,
) -> Result<Option<String>, StoreError> {
    let key = fact_key(EventType::Effect, app.pid, id);
    let record = reader.records(&[key])?.into_iter().flatten().find(|record| record.id() == id);
    let Some(FactRecord::Effect(effect)) = record else { return Ok(None) };
    let time = effect.fact.time;
    let mut outcome = Ok(None);
    reader.scan_rows(app, time, time.plus(1), |_, value| {
        outcome = RowView::decode(value).map(|row| {
            let is_match = row.event_type == EventType::Effect && row.text(TextCell::EventId) == id;
            is_match.then(|| row.text(TextCell::ActivationId).to_owned())
        });
        if let Ok(None) = outcome { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome.map(|id| id.filter(|id| !id.is_empty()))
}
