//! The activations credited to a campaign, newest first.

use attribution::facts::device_ids::IdKind;
use attribution::facts::event::{Pid, SpreadId, TouchKind};
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use store::layout::campaign_index::CreditedActivation;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;
use store::reader::View;

use crate::ExportError;
use crate::format::columns::channel::channel_name;
use crate::format::time::writer::TimeWriter;
use crate::http::extract::{Segments, next_page, parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;
use crate::query::cursor::Cursor;
use crate::query::parameter::{AFTER, FROM, LIMIT, TIMEZONE, TO, number, pairs};
use crate::query::raw_params::RawParams;
use crate::query::{ExportQuery, Format};

const PARAMETERS: &[&str] = &[FROM, TO, TIMEZONE, LIMIT, AFTER];

/// A page is in memory until it is sent.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Rows that are in memory at a time.
const ROWS_PER_READ: usize = 64;

/// In the order of [`IdKind::ALL`].
const ID_CELLS: [TextCell; IdKind::ALL.len()] = [
    TextCell::Oaid,
    TextCell::Gaid,
    TextCell::Idfa,
    TextCell::Caid,
    TextCell::Idfv,
    TextCell::Imei,
    TextCell::AndroidId,
    TextCell::Mac,
];

pub(crate) async fn devices(
    State(state): State<ExportState>,
    Segments((key, spreadid)): Segments<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let uri = request.uri().clone();
    let app = respond::app(&state, key)?;
    let spreadid = number(&spreadid).ok_or_else(|| Problem::path_not_found(uri.path()))?;
    let spreadid = SpreadId(spreadid);
    let params = parameters(&uri)?;
    let (query, limit) = parse(pairs(&params), spreadid)?;
    query.check(app, &state.policy)?;
    let (pid, selected) = (app.pid, query.clone());
    let read = respond::read(&state, app, move |reader, policy| {
        let mut writer = Writer { policy, times: TimeWriter::new(&selected.zone) };
        let (shown, last) = writer.page(&reader.view(), pid, spreadid, &selected, limit)?;
        Ok((writer.document(pid, spreadid, shown), last))
    });
    let (document, last) = read.await?;
    let next = last.map(|key| Cursor::after(&key, &query).to_string());
    let next = next.and_then(|cursor| next_page(&uri, &params, &cursor));
    Ok(respond::json_with(respond::range(&query).into_iter().chain(next), &document))
}

/// Parses a query like that of an export of the campaign's activations. Its cursors are not valid for exports.
pub(crate) fn parse<'a>(
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    spreadid: SpreadId,
) -> Result<(ExportQuery, usize), ExportError> {
    let params = RawParams::new(PARAMETERS, parameters)?;
    let limit = params.page_limit()?;
    let mut query = ExportQuery::new(Format::Ndjson, &params)?;
    query.filter.event_type = Some(EventType::Activation);
    query.filter.statuses = Some(vec![Status::Attributed]);
    query.filter.spreadids = Some([spreadid].into());
    Ok((query, limit))
}

struct Writer<'a> {
    policy: &'a Policy,
    times: TimeWriter,
}

impl Writer<'_> {
    fn document(&self, pid: Pid, spreadid: SpreadId, activations: Vec<Value>) -> Value {
        let campaign = self.policy.campaign(pid, spreadid);
        json!({
            "app": self.policy.app(pid).map_or("", |app| &app.key),
            "spreadid": spreadid.0,
            "campaign": campaign.map(|campaign| &*campaign.name),
            "channel": channel_name(self.policy, pid, spreadid),
            "activations": activations,
        })
    }

    /// Returns the activations of a page and, if there are more, the key of its last one. The page has at most `limit`,
    /// and ends earlier with the one that reaches [`PAGE_BYTES_MAX`].
    fn page(
        &mut self,
        view: &View<'_>,
        pid: Pid,
        spreadid: SpreadId,
        query: &ExportQuery,
        limit: usize,
    ) -> Result<(Vec<Value>, Option<RowKey>), ExportError> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        let mut last = query.after.map(|cursor| cursor.row(pid));
        loop {
            let (range, after) = (query.from..query.to, last.as_ref().map(CreditedActivation::of));
            let count = ROWS_PER_READ.min(limit + 1 - shown.len());
            let rows = view.credited_activations(pid, spreadid, range, after, count)?;
            let is_end = rows.len() < count;
            for (key, value) in rows {
                if shown.len() == limit || bytes >= PAGE_BYTES_MAX {
                    return Ok((shown, last));
                }
                let one = self.row(&key, &RowView::decode(&value)?)?;
                bytes += one.to_string().len();
                shown.push(one);
                last = Some(key);
            }
            if is_end {
                return Ok((shown, None));
            }
        }
    }

    fn row(&mut self, key: &RowKey, row: &RowView<'_>) -> Result<Value, ExportError> {
        let ids = IdKind::ALL.iter().zip(ID_CELLS).map(|(kind, cell)| (kind, row.text(cell)));
        let ids: Map<String, Value> = ids
            .filter(|(_, id)| !id.is_empty())
            .map(|(kind, id)| (kind.name().into(), id.into()))
            .collect();
        let click_id = row.text(TextCell::ClickId);
        Ok(json!({
            "event_id": row.text(TextCell::EventId),
            "event_time": self.times.text(key.event_time),
            "install_type": row.install_type.map(|kind| kind.name()),
            "ids": ids,
            "match_type": row.match_type.map(|kind| kind.name()),
            "touch_type": row.touch_kind.map(TouchKind::name),
            "touch_time": row.touch_time.map(|time| self.times.text(time)),
            "click_id": (!click_id.is_empty()).then_some(click_id),
        }))
    }
}

#[cfg(test)]
mod tests;
