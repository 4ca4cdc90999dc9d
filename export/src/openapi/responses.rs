//! What comes back: answers, refusals and their headers.

use serde_json::{Map, Value, json};

use crate::problem::RETRY_AFTER_SECONDS;

/// The forms of what a path gives.
pub(super) enum Answer {
    /// By the name of its schema.
    Json(&'static str),
    /// JSON of rows in a range.
    Range(&'static str),
    /// JSON of rows, a page at a time.
    Paged(&'static str),
    PagedRange(&'static str),
    /// A summary in CSV.
    Table,
    /// A download, by its media type.
    Rows(&'static str),
}

impl Answer {
    pub fn is_read_from_store(&self) -> bool {
        !matches!(self, Self::Json(_))
    }

    fn media_type(&self) -> &'static str {
        match self {
            Self::Json(_) | Self::Range(_) | Self::Paged(_) | Self::PagedRange(_) => {
                "application/json"
            }
            Self::Table => "text/csv",
            Self::Rows(media_type) => media_type,
        }
    }

    fn schema(&self) -> Value {
        match self {
            Self::Json(name) | Self::Range(name) | Self::Paged(name) | Self::PagedRange(name) => {
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
            Self::Table | Self::Rows(_) => json!({ "type": "string" }),
        }
    }

    fn headers(&self) -> Vec<&'static str> {
        const RANGE: [&str; 2] = ["Adtrail-Range-From", "Adtrail-Range-To"];
        const ROWS: [&str; 4] =
            ["Content-Disposition", "Link", "Adtrail-Export-Id", "Adtrail-Complete-Until"];
        match self {
            Self::Json(_) => vec![],
            Self::Range(_) => RANGE.to_vec(),
            Self::Paged(_) => vec!["Link"],
            Self::PagedRange(_) => [&RANGE[..], &["Link"]].concat(),
            Self::Table => [&RANGE[..], &["Content-Disposition"]].concat(),
            Self::Rows(_) => [&RANGE[..], &ROWS].concat(),
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
    if let Answer::Rows(_) = answer {
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
    let name = match status {
        400 => "BadRequest",
        401 => "Unauthorized",
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

/// The components.
pub(super) fn all() -> Value {
    let retry = json!({ "Retry-After": { "$ref": "#/components/headers/Retry-After" } });
    json!({
        "BadRequest": problem(
            "A parameter is wrong, missing, unknown or given twice; an address can not be read",
            &["bad-parameter", "missing-parameter", "unknown-parameter", "repeated-parameter", "bad-query"],
            json!({}),
        ),
        "Unauthorized": problem(
            "The token is missing, not whole, unknown or has expired",
            &["unauthorized", "token-expired"],
            json!({ "WWW-Authenticate": { "$ref": "#/components/headers/WWW-Authenticate" } }),
        ),
        "UnknownApp": problem(
            "An app that there is not, or that the token may not see; a path that leads nowhere",
            &["unknown-app", "not-found"],
            json!({}),
        ),
        "UnknownExport": problem(
            "An export that there is not, or not any more, or that is of an app the token may not see",
            &["unknown-export", "not-found"],
            json!({}),
        ),
        "TooManyDownloads": problem(
            "So many downloads of the token are under way as it may have",
            &["too-many-downloads"],
            retry.clone(),
        ),
        "StoreFailed": problem("The rows could not be read; the service's log says why", &["store"], json!({})),
        "Busy": problem("So many downloads are under way as there may be of all", &["busy"], retry),
        "OldVersion": problem(
            "HTTP/1.0 has no end mark: a download that failed would look complete",
            &["http-version"],
            json!({}),
        ),
        "LongAddress": { "description": "The address has more than 65,534 bytes" },
        "LargeHeaders": { "description": "More than 100 headers, or 256 KiB of address and headers" },
    })
}

fn problem(description: &str, kinds: &[&str], headers: Value) -> Value {
    let kinds: Vec<_> = kinds.iter().map(|kind| format!("/problems/{kind}")).collect();
    json!({
        "description": description,
        "headers": headers,
        "content": { "application/problem+json": { "schema": {
            "allOf": [{ "$ref": "#/components/schemas/Problem" }],
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
            "description": "The first time after the range", "required": true, "schema": time,
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
