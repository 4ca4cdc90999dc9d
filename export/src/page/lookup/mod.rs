//! The pages that look something up by an id: an activation, a device. Start with `device`.

pub(super) mod activation;
pub(super) mod device;
pub(crate) mod recent;

use super::export_form::options::APP;
use super::http::request::PageRequest;

/// Returns the error of the field `app`.
fn no_app(page_request: &PageRequest) -> Option<(&'static str, String)> {
    Some((APP, format!("No app has this key: \u{201c}{}\u{201d}", page_request.value(APP))))
}
