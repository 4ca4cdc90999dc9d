//! The page of an activation's explanation.

use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;

use super::{audited, no_app};
use crate::api::explain::explained;
use crate::explain::view::view;
use crate::http::problem::Problem;
use crate::page::export_form::options::APP;
use crate::page::http::request::PageRequest;
use crate::page::http::respond;
use crate::page::layout::choose;

const EVENT_ID: &str = "event_id";

pub(crate) async fn activation(page_request: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&page_request.apps(), page_request.value(APP));
    let id = page_request.value(EVENT_ID);
    let has_id = page_request.params.iter().any(|(name, _)| name == EVENT_ID);
    let (mut found, mut status, mut wrong) = (None, StatusCode::OK, None);
    match app {
        _ if !has_id => {}
        None => (status, wrong) = (StatusCode::NOT_FOUND, no_app(&page_request)),
        Some(_) if id.is_empty() => {
            status = StatusCode::BAD_REQUEST;
            wrong = Some((EVENT_ID, "Enter the event_id of an activation.".to_owned()));
        }
        Some(app) => {
            found = explained(&page_request.state, app, id, view).await?.flatten();
            if found.is_none() {
                status = StatusCode::NOT_FOUND;
                wrong = Some((EVENT_ID, format!("{} has no activation with this id.", app.name)));
            }
        }
    }
    let shell = page_request.shell("Activation", "/activations");
    let page = context! { apps, event_id => id, found, wrong };
    let looked_up = app.filter(|_| !id.is_empty());
    Ok(audited(respond::page(status, "activation.html", &shell, page)?, looked_up))
}
