//! The description of the HTTP API at `/openapi.json`, in OpenAPI 3.1.
//!
//! It is put together from what the code has: names of parameters, their allowed values, columns. What it
//! can not take from there, its test compares with the routes and with what they answer. It has no data,
//! so whoever asks gets it. A new route is described in `operations`.

mod explanation;
mod operations;
mod parameters;
mod parts;
mod pull;
mod responses;
mod schemas;
#[cfg(test)]
mod tests;
mod types;

use std::sync::OnceLock;

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::http::extract::no_parameters;
use crate::http::problem::Problem;
use crate::query::parameter::LIMIT;
use operations::{OPERATIONS, Operation};

pub(crate) async fn description(uri: Uri) -> Result<Response, Problem> {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    no_parameters(&uri)?;
    // Keys are texts and writing to memory can not fail.
    let text = TEXT.get_or_init(|| serde_json::to_vec(&document()).unwrap_or_default().into());
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, text.clone()).into_response())
}

fn document() -> Value {
    let paths: Map<String, Value> =
        OPERATIONS.iter().map(|operation| (operation.path.into(), path_item(operation))).collect();
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "adtrail",
            "summary": "Attributed activations and effects of apps, for any range of time",
            "description": "A parameter that is not described is refused, and so is one that is given \
                twice, unless it is a list. What is wrong is told as application/problem+json, but as the clients of AppsFlyer \
                read it where an address begins with /api/, and as a page to those who accept text/html no less than JSON. \
                Rows can be had compressed, by Accept-Encoding: zstd or gzip. With TE: trailers two \
                trailers follow a complete export: Adtrail-Rows, and Adtrail-Sha256 of the file as \
                it is before compression. One that fails midway ends its connection without the end \
                mark.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "responses": responses::all(),
            "headers": responses::headers(),
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "adt_<id>_<secret>",
                "description": "Needed once the settings have a token; without any nobody is asked.",
            } },
        },
    })
}

fn path_item(operation: &Operation) -> Value {
    json!({ "get": described(operation, false), "head": described(operation, true) })
}

/// `HEAD` answers with the headers of `GET`.
fn described(operation: &Operation, is_head: bool) -> Value {
    let Operation { path, id, summary, description, answer, .. } = operation;
    let path_parameters = operation.path_parameters().map(parameters::of_path);
    let query = operation.query.iter();
    let query = query.map(|name| parameters::of_query(name, operation.of));
    let mut responses: Map<String, Value> = operation
        .refusals()
        .map(|status| (status.to_string(), responses::refusal(path, status)))
        .collect();
    responses.insert("200".into(), responses::success(answer));
    if is_head {
        responses.values_mut().for_each(responses::without_content);
    }
    let mut described = json!({
        "operationId": if is_head { format!("{id}_head") } else { (*id).into() },
        "summary": if is_head { format!("The headers of: {summary}") } else { (*summary).into() },
        "parameters": path_parameters.chain(query).collect::<Vec<_>>(),
        "responses": responses,
    });
    let takes_limit = operation.query.contains(&LIMIT);
    if is_head && operation.is_download() && takes_limit {
        described["description"] = "Begins no export, so it has no Adtrail-Export-Id, and reads \
            nothing; but with limit it reads to the end of the page, for Link, and is a download as \
            long as that takes."
            .into();
    } else if !description.is_empty() {
        described["description"] = (*description).into();
    }
    if operation.is_open {
        described["security"] = json!([]);
    }
    described
}
