//! The page of a device's timeline.

use std::time::Instant;

use attribution::facts::device_ids::IdKind;
use attribution::rules::policy::AppPolicy;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;

use super::recent::DeviceLookup;
use super::{audited, no_app};
use crate::ExportError;
use crate::api::timeline::{KIND, TimelineQuery, VALUE, device_ids, timeline_page};
use crate::http::problem::Problem;
use crate::page::export_form::options::APP;
use crate::page::export_form::state::FieldError;
use crate::page::export_form::view::ZONES;
use crate::page::http::request::PageRequest;
use crate::page::http::respond::{self, redirect, value};
use crate::page::layout::choose;
use crate::query::parameter::{AFTER, TIMEZONE};

const LOOKUP: &str = "lookup";
const TIMELINE_MAX: &str = "100";

/// Starts a lookup: redirects to a URL with a handle. The id of a device is posted, so that it is in no history.
pub(crate) async fn device(
    page_request: PageRequest,
    request: Request,
) -> Result<Response, Problem> {
    let PageRequest { state, caller, .. } = &page_request;
    let params = respond::form(state, caller.name(), request).await?;
    let text = |name| value(&params, name).to_owned();
    let lookup = DeviceLookup { kind: text(KIND), value: text(VALUE), after: text(AFTER) };
    let handle = state.lookups.keep(caller, lookup, Instant::now());
    let pairs = [(APP, value(&params, APP)), (TIMEZONE, value(&params, TIMEZONE))];
    let pairs =
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).chain([(LOOKUP, &*handle)]);
    let query = serde_urlencoded::to_string(pairs.collect::<Vec<_>>()).unwrap_or_default();
    redirect(&format!("/devices?{query}"))
}

/// Shows the form, and the timeline of the handle.
pub(crate) async fn devices(page_request: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&page_request.apps(), page_request.value(APP));
    let handle = page_request.value(LOOKUP);
    let lookup = page_request.state.lookups.find(&page_request.caller, handle, Instant::now());
    let is_gone = !handle.is_empty() && lookup.is_none();
    let (mut found, mut next, mut wrong, mut status) = (None, None, None, StatusCode::OK);
    match (app, &lookup) {
        (_, None) if is_gone => status = StatusCode::NOT_FOUND,
        (_, None) => {}
        (None, Some(_)) => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&page_request)),
        (Some(app), Some(lookup)) => match timeline(&page_request, app, lookup).await {
            Ok((document, cursor)) => (found, next) = (Some(document), cursor),
            Err(error) => match FieldError::new(&error) {
                Some(FieldError { field, message }) => {
                    (status, wrong) = (StatusCode::BAD_REQUEST, Some((field, message)));
                }
                None => return Err(error.into()),
            },
        },
    }
    let looked_up = app.filter(|_| lookup.is_some());
    let DeviceLookup { kind, value, after } = lookup.unwrap_or_default();
    let page = context! {
        apps, kinds => kinds(&kind), value, timezone => zone_of(&page_request), zones => ZONES,
        found => minijinja::Value::from_serialize(found), next, wrong, is_gone,
        is_first => after.is_empty(), app_key => app.map(|app| &*app.key), kind,
    };
    let shell = page_request.shell("Device", "/devices");
    Ok(audited(respond::page(status, "device.html", &shell, page)?, looked_up))
}

async fn timeline(
    page_request: &PageRequest,
    app: &AppPolicy,
    DeviceLookup { kind, value, after }: &DeviceLookup,
) -> Result<(serde_json::Value, Option<String>), ExportError> {
    let pairs = [(TIMEZONE, zone_of(page_request)), ("limit", TIMELINE_MAX), (AFTER, after)];
    let query = TimelineQuery::parse(pairs.into_iter().filter(|(_, value)| !value.is_empty()))?;
    let ids = device_ids(kind, value)?;
    query.check(app, &ids)?;
    timeline_page(&page_request.state, app, ids, query).await
}

fn zone_of(page_request: &PageRequest) -> &str {
    match page_request.value(TIMEZONE) {
        "" => "UTC",
        zone => zone,
    }
}

/// Returns the kinds of ids, each with a flag that says whether it is chosen.
fn kinds(chosen: &str) -> Vec<(&'static str, bool)> {
    IdKind::ALL.iter().map(|kind| (kind.name(), kind.name() == chosen)).collect()
}
