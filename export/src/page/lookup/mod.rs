//! The pages that look something up by an id: an activation, a device. Start with `device`.

pub(super) mod activation;
pub(super) mod device;
pub(crate) mod recent;

use attribution::rules::policy::AppPolicy;
use axum::response::Response;

use super::export_form::options::APP;
use super::http::request::PageRequest;
use crate::Echo;
use crate::http::audit::LookedUp;

/// Returns the error of the field `app`.
pub(super) fn no_app(page_request: &PageRequest) -> Option<(&'static str, String)> {
    let key = Echo::from(page_request.value(APP));
    Some((APP, format!("No app has this key: \u{201c}{key}\u{201d}")))
}

/// Marks a page for the audit log, if something of an app was looked up.
pub(super) fn audited(mut page: Response, looked_up: Option<&AppPolicy>) -> Response {
    if let Some(app) = looked_up {
        page.extensions_mut().insert(LookedUp(app.key.clone()));
    }
    page
}
