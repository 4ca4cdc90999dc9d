//! What comes back: answers, refusals and their headers.

use serde_json::{Map, Value, json};

use super::pull;
use crate::http::problem::RETRY_AFTER_SECONDS;

/// The forms of what a path gives.
pub(super) enum Answer {
    /// By the name of its schema.
    Json(&'static str),
    /// JSON of what one event's rows are made from.
    Read(&'static str),
    /// JSON of rows in a range.
    Range(&'static str),
    /// JSON of rows, a page at a time.
    Paged(&'static str),
    PagedRange(&'static str),
    /// A summary in CSV.
    Table,
    /// A download, by its media type.
    Rows(&'static str),
    /// A download of the Pull API.
    Report,
}

impl Answer {
    pub fn is_read_from_store(&self) -> bool {
        !matches!(self, Self::Json(_))
    }

    fn media_type(&self) -> &'static str {
        match self {
            Self::Json(_)
            | Self::Read(_)
            | Self::Range(_)
            | Self::Paged(_)
            | Self::PagedRange(_) => "application/json",
            Self::Table | Self::Report => "text/csv",
            Self::Rows(media_type) => media_type,
        }
    }

    fn schema(&self) -> Value {
        match self {
            Self::Json(name)
            | Self::Read(name)
            | Self::Range(name)
            | Self::Paged(name)
            | Self::PagedRange(name) => {
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
            Self::Table | Self::Rows(_) | Self::Report => json!({ "type": "string" }),
        }
    }

    fn headers(&self) -> Vec<&'static str> {
        const RANGE: [&str; 2] = ["Adtrail-Range-From", "Adtrail-Range-To"];
        const FILE: [&str; 3] =
            ["Content-Disposition", "Adtrail-Export-Id", "Adtrail-Complete-Until"];
        match self {
            Self::Json(_) | Self::Read(_) => vec![],
            Self::Range(_) => RANGE.to_vec(),
            Self::Paged(_) => vec!["Link"],
            Self::PagedRange(_) => [&RANGE[..], &["Link"]].concat(),
            Self::Table => [&RANGE[..], &["Content-Disposition"]].concat(),
            Self::Rows(_) => [&RANGE[..], &FILE, &["Link"]].concat(),
            Self::Report => [&RANGE[..], &FILE].concat(),
        }
    }
}

/// Of 200.
pub(super) fn success(answer: &Answer) -> Value {
    let headers: Map<String, Value> = answer
        .headers()
        .into_iter()
        .map(|name| (name.into(), json!({ "$ref": format!("#/components/headers/{name}") })))
        .collect();
    let mut response = json!({
        "description": "What was asked for",
        "headers": headers,
        "content": { answer.media_type(): { "schema": answer.schema() } },
    });
    if let Answer::Rows(_) | Answer::Report = answer {
        response["links"] = json!({ "export": {
            "operationId": "export",
            "parameters": { "id": "$response.header.Adtrail-Export-Id" },
            "description": "What became of it",
        } });
    }
    response
}

/// What a path answers with another status.
pub(super) fn refusal(path: &str, status: u16) -> Value {
    let is_pull = path.starts_with(pull::BEGINNING);
    let name = match status {
        400 if is_pull => "PullBadRequest",
        401 if is_pull => "PullUnauthorized",
        404 if is_pull => "PullUnknown",
        429 if is_pull => "PullTooManyDownloads",
        500 if is_pull => "PullStoreFailed",
        505 if is_pull => "PullOldVersion",
        400 => "BadRequest",
        401 => "Unauthorized",
        404 if path.contains("{event_id}") => "UnknownActivation",
        404 if path.contains("{app}") => "UnknownApp",
        404 => "UnknownExport",
        414 => "LongAddress",
        429 => "TooManyDownloads",
        431 => "LargeHeaders",
        503 => "Busy",
        505 => "OldVersion",
        _ => "StoreFailed",
    };
    json!({ "$ref": format!("#/components/responses/{name}") })
}

/// An answer to `HEAD`.
pub(super) fn without_content(response: &mut Value) {
    if let Some(name) = response["$ref"].as_str().and_then(|reference| reference.rsplit('/').next())
    {
        *response = all()[name].take();
    }
    for member in ["content", "links"] {
        response.as_object_mut().map(|response| response.remove(member));
    }
}

/// A form of refusals: media type and schema.
type Form = [&'static str; 2];

const PROBLEM: Form = ["application/problem+json", "Problem"];
const PULL: Form = ["application/json", "PullError"];

/// The components.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for (name, description, kinds) in REFUSALS {
        all.insert((*name).into(), refused(PROBLEM, name, description, kinds));
    }
    for (name, description, kinds) in PULL_REFUSALS {
        all.insert((*name).into(), refused(PULL, name, description, kinds));
    }
    for (name, description) in [
        (
            "LongAddress",
            "The address has more than 65,534 bytes. Without a body: nothing is looked at by then.",
        ),
        (
            "LargeHeaders",
            "More than 100 headers, or 256 KiB of address and headers. Without a body: nothing is \
             looked at by then.",
        ),
    ] {
        all.insert(name.into(), json!({ "description": description }));
    }
    all.into()
}

/// A name, when it comes, and the types of its problem.
type Refusal = (&'static str, &'static str, &'static [&'static str]);

const BAD: (&str, &[&str]) = (
    "A parameter is wrong, missing, unknown, given twice or no UTF-8; an address can not be read",
    &["bad-parameter", "missing-parameter", "unknown-parameter", "repeated-parameter", "bad-query"],
);
const UNAUTHORIZED: (&str, &[&str]) =
    ("The token is missing, not whole, unknown or has expired", &["unauthorized", "token-expired"]);
const STORE: (&str, &[&str]) =
    ("The rows could not be read; the service's log says why", &["store"]);
const OLD_VERSION: (&str, &[&str]) =
    ("HTTP/1.0 has no end mark: a download that failed would look complete", &["http-version"]);

const REFUSALS: &[Refusal] = &[
    ("BadRequest", BAD.0, BAD.1),
    ("Unauthorized", UNAUTHORIZED.0, UNAUTHORIZED.1),
    (
        "UnknownApp",
        "An app that there is not, or that the token may not see; a path that leads nowhere",
        &["unknown-app", "not-found"],
    ),
    (
        "UnknownActivation",
        "An activation or an app that there is not, or an app that the token may not see; a path that \
         leads nowhere",
        &["unknown-activation", "unknown-app", "not-found"],
    ),
    (
        "UnknownExport",
        "An export that there is not, or not any more, or that is of an app the token may not see",
        &["unknown-export", "not-found"],
    ),
    (
        "TooManyDownloads",
        "So many downloads of the token are under way as it may have",
        &["too-many-downloads"],
    ),
    ("StoreFailed", STORE.0, STORE.1),
    (
        "Busy",
        "So many downloads are under way as there may be of all, or the store can not be read now",
        &["busy", "store-unavailable"],
    ),
    ("OldVersion", OLD_VERSION.0, OLD_VERSION.1),
];

const PULL_REFUSALS: &[Refusal] = &[
    ("PullBadRequest", BAD.0, BAD.1),
    ("PullUnauthorized", UNAUTHORIZED.0, UNAUTHORIZED.1),
    (
        "PullUnknown",
        "A report or an app that there is not, or an app that the token may not see; a path that leads \
         nowhere",
        &["unknown-report", "unknown-app", "not-found"],
    ),
    (
        "PullTooManyDownloads",
        "So many downloads are under way as the token may have, or as there may be of all",
        &["too-many-downloads", "busy"],
    ),
    ("PullStoreFailed", STORE.0, STORE.1),
    ("PullOldVersion", OLD_VERSION.0, OLD_VERSION.1),
];

fn refused(form: Form, name: &str, description: &str, kinds: &[&str]) -> Value {
    let [media_type, schema] = form;
    let header = match name.trim_start_matches("Pull") {
        "Unauthorized" => Some("WWW-Authenticate"),
        "TooManyDownloads" | "Busy" => Some("Retry-After"),
        _ => None,
    };
    let headers: Map<String, Value> = header
        .into_iter()
        .map(|name| (name.into(), json!({ "$ref": format!("#/components/headers/{name}") })))
        .collect();
    let kinds: Vec<_> = kinds.iter().map(|kind| format!("/problems/{kind}")).collect();
    json!({
        "description": description,
        "headers": headers,
        "content": { media_type: { "schema": {
            "allOf": [{ "$ref": format!("#/components/schemas/{schema}") }],
            "properties": { "type": { "enum": kinds } },
        } } },
    })
}

/// The components' headers.
pub(super) fn headers() -> Value {
    let time = json!({ "$ref": "#/components/schemas/Instant" });
    json!({
        "Content-Disposition": {
            "description": "A name for the file: app, range, zone",
            "required": true,
            "schema": { "type": "string", "pattern": "^attachment; filename=\"[A-Za-z0-9.+_-]+\"$" },
        },
        "Link": {
            "description": "Where the next page is, with rel=\"next\", if there is one",
            "schema": { "type": "string", "pattern": "^<[^>]+>; rel=\"next\"$" },
        },
        "Adtrail-Export-Id": {
            "description": "Of the export, for /v1/exports/{id}; HEAD has none",
            "schema": { "$ref": "#/components/schemas/ExportId" },
        },
        "Adtrail-Complete-Until": {
            "description": "All that Kafka had received before this time is in the answer; missing while \
                that is not known",
            "schema": time,
        },
        "Adtrail-Range-From": {
            "description": "Where the range begins", "required": true, "schema": time,
        },
        "Adtrail-Range-To": {
            "description": "The first time after the range; the last that there is, where it has no end",
            "required": true,
            "schema": time,
        },
        "Retry-After": {
            "description": "Seconds",
            "required": true,
            "schema": { "type": "integer", "examples": [RETRY_AFTER_SECONDS] },
        },
        "WWW-Authenticate": {
            "description": "Which scheme there is",
            "required": true,
            "schema": { "type": "string", "const": "Bearer" },
        },
    })
}
