//! A device's timeline: what the store knows of it, newest first.
//!
//! The device id is only in the request, never in the rows of a response, a log or an error.

pub(crate) mod cursor;

use attribution::explain::timeline::{CompleteSince, Timeline, complete_since, timeline};
use attribution::facts::device_ids::{DeviceIds, IdKind};
use attribution::facts::event::{EventTime, Family, SpreadId};
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::{AppPolicy, Policy};
use attribution::rules::row::Status;
use attribution::worker::limits::ReadLimits;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use store::reader::Reader;

use crate::format::columns::channel::channel_name;
use crate::format::time::writer::TimeWriter;
use crate::format::time::zone::Zone;
use crate::http::extract::{Segments, next_page, parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;
use crate::query::parameter::{AFTER, LIMIT, TIMEZONE, bad, pairs};
use crate::query::raw_params::RawParams;
use crate::{Echo, ExportError};
use cursor::TimelineCursor;

pub(crate) const KIND: &str = "kind";
pub(crate) const VALUE: &str = "value";
const PARAMETERS: &[&str] = &[TIMEZONE, LIMIT, AFTER];

/// The parameters of a request, except the device.
pub(crate) struct TimelineQuery {
    zone: Zone,
    limit: usize,
    after: Option<TimelineCursor>,
}

pub(crate) async fn device(
    State(state): State<ExportState>,
    Segments((key, kind, value)): Segments<(String, String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let uri = request.uri().clone();
    let app = respond::app(&state, key)?;
    let ids = device_ids(&kind, &value)?;
    let params = parameters(&uri)?;
    let query = TimelineQuery::parse(pairs(&params))?;
    query.check(app, &ids)?;
    let (document, next) = timeline_page(&state, app, ids, query).await?;
    let next = next.and_then(|cursor| next_page(&uri, &params, &cursor));
    Ok(respond::json_with(next, &document))
}

/// Returns a page of a device's timeline, and the cursor of the next page, if there is one.
pub(crate) async fn timeline_page(
    state: &ExportState,
    app: &AppPolicy,
    ids: DeviceIds,
    query: TimelineQuery,
) -> Result<(Value, Option<String>), ExportError> {
    let (pid, key) = (app.pid, app.key.clone());
    let TimelineQuery { zone, limit, after } = query;
    let after = after.map(|after| after.entry(pid));
    respond::read(state, app, move |reader, policy| {
        let app = policy.app(pid).ok_or(ExportError::UnknownApp(Echo::from(&*key)))?;
        let mut facts = reader.clone();
        let limits = ReadLimits::default();
        let found = timeline(&mut facts, policy, app, &ids, after, limit, limits)?;
        let since = since(reader, policy, app);
        let last = found.found.last().filter(|_| found.has_more).map(|last| last.entry);
        let next = last.map(|entry| TimelineCursor::after(entry, pid, &ids).to_string());
        Ok((document(&found, since, app, policy, &zone), next))
    })
    .await
}

impl TimelineQuery {
    /// Checks that the cursor was issued for this device.
    pub fn check(&self, app: &AppPolicy, ids: &DeviceIds) -> Result<(), ExportError> {
        self.after.as_ref().map_or(Ok(()), |after| after.check(app.pid, ids))
    }

    pub fn parse<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExportError> {
        let params = RawParams::new(PARAMETERS, parameters)?;
        Ok(Self {
            zone: params.zone()?,
            limit: params.page_limit()?,
            after: params.one(AFTER).map(TimelineCursor::parse).transpose()?,
        })
    }
}

/// Parses a device id in any form that events may have (plain, or an MD5 under either name) into all ids by which an
/// event can match it.
///
/// # Errors
/// The kind is unknown, or the value is not an id of this kind. The error does not contain the value.
pub(crate) fn device_ids(kind: &str, value: &str) -> Result<DeviceIds, ExportError> {
    let plain = kind.strip_suffix("_md5").unwrap_or(kind);
    if !IdKind::ALL.iter().any(|known| known.name() == plain) {
        let allowed = IdKind::ALL.map(IdKind::name).to_vec();
        let problem = format!("expected {}", allowed.join(", or "));
        return Err(bad(KIND, problem, kind, allowed));
    }
    // Rows have an MD5 under the plain name if the plain id is unknown.
    let md5 = format!("{plain}_md5");
    let names = if plain == kind { vec![plain, &md5] } else { vec![&*md5] };
    let received = names.into_iter().map(|name| (name.into(), value.into())).collect();
    let ids = DeviceIds::of_app_event(&received);
    if ids.is_empty() {
        let allowed = "an id of the kind, or its MD5 in 32 hexadecimal digits";
        let problem = format!("expected {allowed}, which identifies a device");
        return Err(bad(VALUE, problem, "", vec![allowed]));
    }
    Ok(ids)
}

fn since(reader: &Reader, policy: &Policy, app: &AppPolicy) -> CompleteSince {
    use attribution::ledger::Facts;
    let (until, floor) = (reader.consumed_until(), reader.expiry_floor(app.pid));
    complete_since(policy, app, until, &floor, reader.view().oldest(app.pid))
}

fn document(
    timeline: &Timeline,
    since: CompleteSince,
    app: &AppPolicy,
    policy: &Policy,
    zone: &Zone,
) -> Value {
    let mut writer = Writer { app, policy, times: TimeWriter::new(zone) };
    let mut since_of = |family: Family| {
        let time = since[family as usize];
        (time > EventTime::default()).then(|| writer.times.text(time))
    };
    let complete_since = json!({
        "touches": since_of(Family::Touch),
        "activations": since_of(Family::Activation),
        "effects": since_of(Family::Effect),
    });
    let events: Vec<Value> =
        timeline.found.iter().map(|found| writer.event(&found.record)).collect();
    json!({ "app": &*app.key, "complete_since": complete_since, "events": events })
}

/// Writes events, with names of the current catalogue.
struct Writer<'a> {
    app: &'a AppPolicy,
    policy: &'a Policy,
    times: TimeWriter,
}

impl Writer<'_> {
    fn event(&mut self, record: &FactRecord) -> Value {
        match record {
            FactRecord::Touch(touch) => json!({
                "type": touch.kind.name(),
                "time": self.times.text(touch.time),
                "click_id": text(touch.click_id()),
                "purpose": touch.purpose.name(),
                "spreadid": touch.spreadid.0,
                "campaign": self.campaign(touch.spreadid),
                "channel": self.channel(touch.spreadid),
                "site": text(touch.site()),
            }),
            FactRecord::Activation(record) => {
                let decision = record.decision.as_ref();
                let touch = decision.and_then(|decision| decision.credit.touch.as_ref());
                let (status, spreadid) = current_row(record.current_row.as_ref());
                json!({
                    "type": "activation",
                    "time": self.times.text(record.fact.time),
                    "event_id": &*record.fact.id,
                    "status": status,
                    "install_type": decision.map(|decision| decision.install_type.name()),
                    "spreadid": spreadid.0,
                    "campaign": self.campaign(spreadid),
                    "channel": self.channel(spreadid),
                    "match_type": touch.map(|touch| touch.match_type.name()),
                    "touch_time": touch.map(|touch| self.times.text(touch.time)),
                    "click_id": touch.and_then(|touch| text(&touch.click_id)),
                })
            }
            FactRecord::Effect(record) => {
                let (status, spreadid) = current_row(record.current_row.as_ref());
                json!({
                    "type": "effect",
                    "time": self.times.text(record.fact.time),
                    "event_id": &*record.fact.id,
                    "event_name": &*record.fact.name,
                    "status": status,
                    "spreadid": spreadid.0,
                    "campaign": self.campaign(spreadid),
                    "channel": self.channel(spreadid),
                    "revenue": text(&record.fact.revenue),
                    "currency": text(&record.fact.currency),
                })
            }
        }
    }

    fn campaign(&self, spreadid: SpreadId) -> Option<&str> {
        self.policy.campaign(self.app.pid, spreadid).and_then(|campaign| text(&campaign.name))
    }

    fn channel(&self, spreadid: SpreadId) -> Option<&str> {
        text(channel_name(self.policy, self.app.pid, spreadid))
    }
}

/// Returns status and campaign of a row; nothing before the first decision.
fn current_row(
    current_row: Option<&attribution::ledger::record::CurrentRow>,
) -> (Option<&'static str>, SpreadId) {
    current_row.map_or((None, SpreadId::default()), |current_row| {
        (Some(Status::name(current_row.status)), current_row.spreadid)
    })
}

/// Returns `None` for an empty text, which JSON has as `null`.
fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
