//! Why an activation is credited as it is, and what is known of a device.

use attribution::ids::IdKind;
use attribution::policy::AppPolicy;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use minijinja::context;

use super::answer::{self, value};
use super::choice::Wrong;
use super::form::ZONES;
use super::options::APP;
use super::shell::{Shell, choose};
use crate::ExportError;
use crate::access::Caller;
use crate::explain::{explained, told};
use crate::parameter::{AFTER, TIMEZONE};
use crate::problem::Problem;
use crate::routes::{ExportState, parameters};
use crate::timeline::{KIND, TimelineQuery, VALUE, device_ids, look};

const EVENT_ID: &str = "event_id";
const TIMELINE_MAX: &str = "100";

/// What was asked for of an app, from an address or a form.
struct Asked<'a> {
    given: &'a [(String, String)],
    caller: &'a Caller,
    headers: &'a HeaderMap,
}

impl Asked<'_> {
    fn shell(&self, title: &str, path: &str) -> Shell {
        let same = (value(self.given, APP), value(self.given, TIMEZONE));
        Shell::new(title, path, same, (self.caller, self.headers))
    }
}

pub(crate) async fn activation(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let given = parameters(&uri)?;
    let asked = Asked { given: &given, caller: &caller, headers: &headers };
    let (app, apps) = choose(&caller.apps(&state.policy), value(&given, APP));
    let id = value(&given, EVENT_ID);
    let is_asked = given.iter().any(|(name, _)| name == EVENT_ID);
    let (mut found, mut status, mut wrong) = (None, StatusCode::OK, None);
    match app {
        _ if !is_asked => {}
        None => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&given)),
        Some(_) if id.is_empty() => {
            status = StatusCode::BAD_REQUEST;
            wrong = Some((EVENT_ID, "Enter the event_id of an activation.".to_owned()));
        }
        Some(app) => {
            found = explained(&state, app, id, told).await?.flatten();
            if found.is_none() {
                status = StatusCode::NOT_FOUND;
                wrong = Some((EVENT_ID, format!("{} has no activation with this id.", app.name)));
            }
        }
    }
    let shell = asked.shell("Activation", "/activations");
    let page = context! { apps, event_id => id, found, wrong };
    answer::page(status, "activation.html", &shell, page)
}

/// The form alone: what is looked for is posted, as an id of a device is for no history.
pub(crate) async fn devices(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let given = parameters(&uri)?;
    let asked = Asked { given: &given, caller: &caller, headers: &headers };
    let (_, apps) = choose(&caller.apps(&state.policy), value(&given, APP));
    let timezone = zone_of(&given);
    let page = context! { apps, kinds => kinds(""), timezone, zones => ZONES };
    let shell = asked.shell("Device", "/devices");
    answer::page(StatusCode::OK, "device.html", &shell, page)
}

pub(crate) async fn device(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let given = answer::form(request).await?;
    let asked = Asked { given: &given, caller: &caller, headers: &headers };
    let (app, apps) = choose(&caller.apps(&state.policy), value(&given, APP));
    let (kind, id, after) = (value(&given, KIND), value(&given, VALUE), value(&given, AFTER));
    let (mut found, mut next, mut wrong, mut status) = (None, None, None, StatusCode::OK);
    match app {
        None => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&given)),
        Some(app) => match timeline(&state, app, &given).await {
            Ok((document, cursor)) => (found, next) = (Some(document), cursor),
            Err(error) => match Wrong::new(&error) {
                Some(Wrong { field, message }) => {
                    (status, wrong) = (StatusCode::BAD_REQUEST, Some((field, message)));
                }
                None => return Err(error.into()),
            },
        },
    }
    let page = context! {
        apps, kinds => kinds(kind), value => id, timezone => zone_of(&given), zones => ZONES,
        found => minijinja::Value::from_serialize(found), next, wrong,
        is_first => after.is_empty(), app_key => app.map(|app| &*app.key), kind,
    };
    answer::page(status, "device.html", &asked.shell("Device", "/devices"), page)
}

async fn timeline(
    state: &ExportState,
    app: &AppPolicy,
    given: &[(String, String)],
) -> Result<(serde_json::Value, Option<String>), ExportError> {
    let after = value(given, AFTER);
    let zone = zone_of(given);
    let pairs = [(TIMEZONE, zone), ("limit", TIMELINE_MAX), (AFTER, after)];
    let query = TimelineQuery::parse(pairs.into_iter().filter(|(_, value)| !value.is_empty()))?;
    let ids = device_ids(value(given, KIND), value(given, VALUE))?;
    query.check(app, &ids)?;
    look(state, app, ids, query).await
}

fn zone_of(given: &[(String, String)]) -> &str {
    match value(given, TIMEZONE) {
        "" => "UTC",
        zone => zone,
    }
}

/// Each with whether it is chosen.
fn kinds(chosen: &str) -> Vec<(&'static str, bool)> {
    IdKind::ALL.iter().map(|kind| (kind.name(), kind.name() == chosen)).collect()
}

fn no_app(given: &[(String, String)]) -> Option<(&'static str, String)> {
    Some((APP, format!("No app has this key: \u{201c}{}\u{201d}", value(given, APP))))
}
