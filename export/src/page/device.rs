//! Why an activation is credited as it is, and what is known of a device.

use std::time::Instant;

use attribution::facts::device_ids::IdKind;
use attribution::rules::policy::AppPolicy;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;

use super::export_form::options::APP;
use super::export_form::state::FieldError;
use super::export_form::view::ZONES;
use super::layout::choose;
use super::recent_lookups::Lookup;
use super::request::PageRequest;
use super::respond::{self, redirect, value};
use crate::ExportError;
use crate::api::explain::explained;
use crate::api::timeline::{KIND, TimelineQuery, VALUE, device_ids, look};
use crate::explain::view::view;
use crate::http::problem::Problem;
use crate::query::parameter::{AFTER, TIMEZONE};

const EVENT_ID: &str = "event_id";
const LOOKUP: &str = "lookup";
const TIMELINE_MAX: &str = "100";

pub(crate) async fn activation(asked: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&asked.apps(), asked.value(APP));
    let id = asked.value(EVENT_ID);
    let is_asked = asked.given.iter().any(|(name, _)| name == EVENT_ID);
    let (mut found, mut status, mut wrong) = (None, StatusCode::OK, None);
    match app {
        _ if !is_asked => {}
        None => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&asked)),
        Some(_) if id.is_empty() => {
            status = StatusCode::BAD_REQUEST;
            wrong = Some((EVENT_ID, "Enter the event_id of an activation.".to_owned()));
        }
        Some(app) => {
            found = explained(&asked.state, app, id, view).await?.flatten();
            if found.is_none() {
                status = StatusCode::NOT_FOUND;
                wrong = Some((EVENT_ID, format!("{} has no activation with this id.", app.name)));
            }
        }
    }
    let shell = asked.shell("Activation", "/activations");
    let page = context! { apps, event_id => id, found, wrong };
    respond::page(status, "activation.html", &shell, page)
}

/// What is looked for is posted, as an id of a device is for no history, and is found at an address
/// with a handle of it.
pub(crate) async fn device(asked: PageRequest, request: Request) -> Result<Response, Problem> {
    let given = respond::form(request).await?;
    let text = |name| value(&given, name).to_owned();
    let lookup = Lookup { kind: text(KIND), value: text(VALUE), after: text(AFTER) };
    let handle = asked.state.lookups.keep(&asked.caller, lookup, Instant::now());
    let pairs = [(APP, value(&given, APP)), (TIMEZONE, value(&given, TIMEZONE))];
    let pairs =
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).chain([(LOOKUP, &*handle)]);
    let query = serde_urlencoded::to_string(pairs.collect::<Vec<_>>()).unwrap_or_default();
    redirect(&format!("/devices?{query}"))
}

/// The form, and what was found by the handle.
pub(crate) async fn devices(asked: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&asked.apps(), asked.value(APP));
    let handle = asked.value(LOOKUP);
    let lookup = asked.state.lookups.find(&asked.caller, handle, Instant::now());
    let is_gone = !handle.is_empty() && lookup.is_none();
    let (mut found, mut next, mut wrong, mut status) = (None, None, None, StatusCode::OK);
    match (app, &lookup) {
        (_, None) if is_gone => status = StatusCode::NOT_FOUND,
        (_, None) => {}
        (None, Some(_)) => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&asked)),
        (Some(app), Some(lookup)) => match timeline(&asked, app, lookup).await {
            Ok((document, cursor)) => (found, next) = (Some(document), cursor),
            Err(error) => match FieldError::new(&error) {
                Some(FieldError { field, message }) => {
                    (status, wrong) = (StatusCode::BAD_REQUEST, Some((field, message)));
                }
                None => return Err(error.into()),
            },
        },
    }
    let Lookup { kind, value, after } = lookup.unwrap_or_default();
    let page = context! {
        apps, kinds => kinds(&kind), value, timezone => zone_of(&asked), zones => ZONES,
        found => minijinja::Value::from_serialize(found), next, wrong, is_gone,
        is_first => after.is_empty(), app_key => app.map(|app| &*app.key), kind,
    };
    respond::page(status, "device.html", &asked.shell("Device", "/devices"), page)
}

async fn timeline(
    asked: &PageRequest,
    app: &AppPolicy,
    Lookup { kind, value, after }: &Lookup,
) -> Result<(serde_json::Value, Option<String>), ExportError> {
    let pairs = [(TIMEZONE, zone_of(asked)), ("limit", TIMELINE_MAX), (AFTER, after)];
    let query = TimelineQuery::parse(pairs.into_iter().filter(|(_, value)| !value.is_empty()))?;
    let ids = device_ids(kind, value)?;
    query.check(app, &ids)?;
    look(&asked.state, app, ids, query).await
}

fn zone_of(asked: &PageRequest) -> &str {
    match asked.value(TIMEZONE) {
        "" => "UTC",
        zone => zone,
    }
}

/// Each with whether it is chosen.
fn kinds(chosen: &str) -> Vec<(&'static str, bool)> {
    IdKind::ALL.iter().map(|kind| (kind.name(), kind.name() == chosen)).collect()
}

fn no_app(asked: &PageRequest) -> Option<(&'static str, String)> {
    Some((APP, format!("No app has this key: \u{201c}{}\u{201d}", asked.value(APP))))
}
