//! Helpers of handlers: the app of a request, a thread to read on, and response headers.

use std::sync::Arc;

use attribution::rules::policy::{AppPolicy, Policy};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use store::reader::Reader;

use super::problem::Problem;
use crate::format::time::writer::in_utc;
use crate::http::state::{ExportState, SCANS_MAX};
use crate::query::ExportQuery;
use crate::{Echo, ExportError};

const RANGE_FROM: HeaderName = HeaderName::from_static("adtrail-range-from");
const RANGE_TO: HeaderName = HeaderName::from_static("adtrail-range-to");

/// Returns the app with this key.
pub(crate) fn app(state: &ExportState, key: String) -> Result<&AppPolicy, Problem> {
    let app = state.policy.app_by_key(&key);
    app.ok_or_else(|| ExportError::UnknownApp(Echo::from(&*key)).into())
}

/// Reads the store on a blocking thread, as one of the concurrent scans.
///
/// # Errors
/// Too many scans are running, or the read failed.
pub(crate) async fn read<T: Send + 'static>(
    state: &ExportState,
    app: &AppPolicy,
    read: impl FnOnce(&Reader, &Policy) -> Result<T, ExportError> + Send + 'static,
) -> Result<T, ExportError> {
    let permit = Arc::clone(&state.scans).try_acquire_owned();
    let permit = permit.map_err(|_| ExportError::Busy { scans_max: SCANS_MAX })?;
    let (reader, policy) = (state.reader.clone(), Arc::clone(&state.policy));
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(&reader, &policy)
    });
    let found = reading.await.unwrap_or(Err(ExportError::BrokenOff));
    if let Err(error @ (ExportError::Store(_) | ExportError::BrokenOff)) = &found {
        tracing::error!(app = &*app.key, %error, "reading the store failed");
    }
    found
}

/// Returns the headers of a response with rows, which no cache may store, and `texts`. A text that is not a valid
/// header value is left out.
pub(crate) fn headers(
    media_type: &str,
    texts: impl IntoIterator<Item = (HeaderName, String)>,
) -> HeaderMap {
    let fixed =
        [(header::CONTENT_TYPE, media_type.into()), (header::CACHE_CONTROL, "no-store".into())];
    let all = fixed.into_iter().chain(texts);
    all.filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?))).collect()
}

/// Forbids browsers to guess the type of any response.
pub(crate) async fn nosniff(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Returns the headers with the range of a query in UTC.
pub(crate) fn range(query: &ExportQuery) -> [(HeaderName, String); 2] {
    [(RANGE_FROM, in_utc(query.from)), (RANGE_TO, in_utc(query.to))]
}

/// Responds with a JSON document.
pub(crate) fn json(document: &impl serde::Serialize) -> Response {
    json_with([], document)
}

/// Like [`json`], with additional headers.
pub(crate) fn json_with(
    texts: impl IntoIterator<Item = (HeaderName, String)>,
    document: &impl serde::Serialize,
) -> Response {
    // Cannot fail: keys are strings, and it writes to memory.
    let body = serde_json::to_vec(document).unwrap_or_default();
    (headers("application/json", texts), body).into_response()
}
