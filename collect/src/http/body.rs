//! Reads request bodies within their limit.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, header};
use listener::is_unfinished;

use super::problem::Problem;

/// Reads a body of at most `bytes_max` bytes. A longer one is refused before it is read if its length is known.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max as u64) {
        return Err(Problem::body_too_large(bytes_max));
    }
    to_bytes(body, bytes_max).await.map_err(|error| match is_unfinished(&error) {
        true => Problem::slow_body(),
        // Without a length, or because the client has gone.
        false => Problem::body_too_large(bytes_max),
    })
}

/// Returns the media type without its parameters, in lower case; empty if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let name = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    name.trim().to_ascii_lowercase()
}
