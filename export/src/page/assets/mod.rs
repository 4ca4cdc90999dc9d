//! The style sheet, the script and the icon. Their names contain a hash of their content, so they can be cached
//! forever.

use std::sync::LazyLock;

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::http::problem::Problem;

/// Their paths.
#[derive(Debug, Serialize)]
pub(super) struct Assets {
    pub style: String,
    pub script: String,
    pub icon: String,
}

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");

pub(super) static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    let at = |name: &str, ending: &str, text: &str| {
        format!("/assets/{name}.{:016x}.{ending}", xxh3_64(text.as_bytes()))
    };
    Assets {
        style: at("page", "css", STYLE),
        script: at("page", "js", SCRIPT),
        icon: at("icon", "svg", ICON),
    }
});

pub(crate) async fn asset(uri: Uri) -> Result<Response, Problem> {
    let (media_type, text) = match uri.path() {
        at if at == ASSETS.style => ("text/css; charset=utf-8", STYLE),
        at if at == ASSETS.script => ("text/javascript; charset=utf-8", SCRIPT),
        at if at == ASSETS.icon => ("image/svg+xml", ICON),
        path => return Err(Problem::path_not_found(path)),
    };
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, text).into_response())
}
