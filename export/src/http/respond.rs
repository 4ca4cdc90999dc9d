//! What the handlers of short answers share: whose rows, and a thread to read them on.

use std::sync::Arc;

use attribution::rules::policy::{AppPolicy, Policy};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use store::reader::Reader;

use super::problem::Problem;
use crate::ExportError;
use crate::http::extract::AppPath;
use crate::http::state::{ExportState, SCANS_MAX};

/// The app of a path.
///
/// # Errors
/// There is none of this key.
pub(crate) fn app<'s>(
    state: &'s ExportState,
    path: AppPath,
    uri: &Uri,
) -> Result<&'s AppPolicy, Problem> {
    let axum::extract::Path(key) = path.map_err(|_| Problem::path_not_found(uri.path()))?;
    app_by_key(state, key)
}

/// # Errors
/// There is none.
pub(crate) fn app_by_key(state: &ExportState, key: String) -> Result<&AppPolicy, Problem> {
    let app = state.policy.app_by_key(&key);
    app.ok_or_else(|| ExportError::UnknownApp(key.into()).into())
}

/// Reads on a thread that may wait for the disk, as one of the scans that may be under way.
///
/// # Errors
/// Too many are; what the reading says.
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
        tracing::error!(app = &*app.key, %error, "a look into the store failed");
    }
    found
}

/// Of rows, which nobody is to keep.
pub(crate) fn headers(media_type: &'static str) -> HeaderMap {
    let fixed: [(HeaderName, &'static str); 3] = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    fixed.into_iter().map(|(name, text)| (name, HeaderValue::from_static(text))).collect()
}

/// A JSON document of rows.
pub(crate) fn json(document: &impl serde::Serialize) -> Response {
    // Keys are texts and writing to memory can not fail.
    let body = serde_json::to_vec(document).unwrap_or_default();
    (headers("application/json"), body).into_response()
}
