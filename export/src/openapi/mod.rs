//! The OpenAPI document of the HTTP API, at `/openapi.json`.
//!
//! `export/openapi.json` is maintained by hand. It has no data, not even the names of apps, and is served without a
//! token. `tests` compares it with the code and with the responses of a service.

#[cfg(test)]
mod tests;

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};

use crate::http::extract::no_parameters;
use crate::http::problem::Problem;

const TEXT: &str = include_str!("../../openapi.json");

pub(crate) async fn description(uri: Uri) -> Result<Response, Problem> {
    no_parameters(&uri)?;
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, TEXT).into_response())
}
