//! Parts of a request that handlers read, and the address of the next page.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderName, Uri, header};
use serde::de::DeserializeOwned;

use super::problem::Problem;
use crate::query::parameter::{self, AFTER, pairs};
use crate::{Echo, ExportError};

/// The parameters of a path.
pub(crate) struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::from_request_parts(parts, state).await;
        let Path(segments) = path.map_err(|_| Problem::path_not_found(parts.uri.path()))?;
        Ok(Self(segments))
    }
}

/// Returns the `Link` header of the next page: the same address with another cursor.
pub(crate) fn next_page(
    uri: &Uri,
    parameters: &[(String, String)],
    cursor: &str,
) -> Option<(HeaderName, String)> {
    let same = pairs(parameters).filter(|(name, _)| *name != AFTER);
    let query = serde_urlencoded::to_string(same.chain([(AFTER, cursor)]).collect::<Vec<_>>());
    Some((header::LINK, format!("<{}?{}>; rel=\"next\"", uri.path(), query.ok()?)))
}

/// Returns the decoded names and values of the query.
///
/// # Errors
/// A value is not UTF-8.
pub(crate) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    parameter::decoded(uri.query().unwrap_or_default().as_bytes())
        .map_err(|name| name.map_or_else(Problem::bad_query, |name| Problem::no_text(&name)))
}

/// Checks that the request has no parameters.
pub(crate) fn no_parameters(uri: &Uri) -> Result<(), Problem> {
    parameters(uri)?.into_iter().next().map_or(Ok(()), |(parameter, _)| {
        Err(ExportError::UnknownParameter { parameter: Echo::from(&*parameter), known: &[] }.into())
    })
}
