//! Error responses: `application/problem+json` of RFC 9457.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::http::refusal::Refusal;
use crate::{Echo, ExportError};

/// A problem. `kind` is stable; the texts may change.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    #[serde(serialize_with = "serialize_status")]
    status: StatusCode,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<Echo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Vec<&'static str>>,
}

pub(crate) const RETRY_AFTER_SECONDS: u32 = 10;
const BAD_PARAMETER: &str = "/problems/bad-parameter";

impl Problem {
    fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, title, status, detail: detail.into(), parameter: None, allowed: None }
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn title(&self) -> &'static str {
        self.title
    }

    pub fn kind(&self) -> &'static str {
        self.kind
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The query is not `application/x-www-form-urlencoded`.
    pub fn bad_query() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "/problems/bad-query",
            "Unreadable query",
            "expected parameters such as from=2026-03-10&to=2026-03-11",
        )
    }

    /// The value of a parameter is not UTF-8.
    pub fn no_text(parameter: &str) -> Self {
        const ALLOWED: &str = "text in UTF-8";
        let parameter = Echo::from(parameter);
        let detail = format!("{parameter}: expected {ALLOWED}, but the decoded bytes are not");
        Self {
            parameter: Some(parameter),
            allowed: Some(vec![ALLOWED]),
            ..Self::new(StatusCode::BAD_REQUEST, BAD_PARAMETER, "Bad parameter", detail)
        }
    }

    /// A form that is malformed or was not sent from our own page.
    pub fn bad_form() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "/problems/bad-form",
            "Unreadable form",
            "expected a form submitted from this service's own page",
        )
    }

    /// The form did not arrive in time.
    pub fn slow_form() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "/problems/request-timeout",
            "Request timeout",
            "the whole form must arrive within 10 seconds; send it again",
        )
    }

    /// A page could not be rendered.
    pub fn page() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "/problems/page",
            "Page failed",
            "the page could not be rendered; the service log has the reason",
        )
    }

    /// HTTP/1.0 cannot mark the end of a download, so a failed one would look complete.
    pub fn http_version() -> Self {
        Self::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "/problems/http-version",
            "HTTP version not supported",
            "expected HTTP/1.1 or later: in HTTP/1.0 a failed download would look complete",
        )
    }

    pub fn path_not_found(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "/problems/not-found",
            "Not found",
            format!("nothing is at this path: {:?}", Echo::from(path)),
        )
    }
}

/// Answers unknown paths.
pub(crate) async fn not_found(uri: Uri) -> Problem {
    Problem::path_not_found(uri.path())
}

/// Answers other methods. The router adds the header `Allow`.
pub(crate) async fn method_not_allowed(method: Method) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "/problems/method-not-allowed",
        "Method not allowed",
        format!("expected GET or HEAD: {:?}", Echo::from(method.as_str())),
    )
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        use ExportError as E;
        const BAD_REQUEST: StatusCode = StatusCode::BAD_REQUEST;
        const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
        let (status, kind, title) = match &error {
            E::MissingParameter { .. } => {
                (BAD_REQUEST, "/problems/missing-parameter", "Missing parameter")
            }
            E::BadParameter { .. } => (BAD_REQUEST, BAD_PARAMETER, "Bad parameter"),
            E::RepeatedParameter { .. } => {
                (BAD_REQUEST, "/problems/repeated-parameter", "Repeated parameter")
            }
            E::UnknownParameter { .. } => {
                (BAD_REQUEST, "/problems/unknown-parameter", "Unknown parameter")
            }
            E::UnknownReport { .. } => (NOT_FOUND, "/problems/unknown-report", "Unknown report"),
            E::UnknownApp(_) => (NOT_FOUND, "/problems/unknown-app", "Unknown app"),
            E::UnknownActivation(_) => {
                (NOT_FOUND, "/problems/unknown-activation", "Unknown activation")
            }
            E::UnknownExport(_) => (NOT_FOUND, "/problems/unknown-export", "Unknown export"),
            E::Busy { .. } | E::BusyToken { .. } | E::BusyAnswers { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "/problems/busy", "Busy")
            }
            E::Store(error) if error.is_passing() => (
                StatusCode::SERVICE_UNAVAILABLE,
                "/problems/store-unavailable",
                "Store unavailable",
            ),
            E::Store(_) | E::BrokenOff | E::NoThread(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "/problems/store", "Store failed")
            }
        };
        let (parameter, allowed): (Option<Echo>, Option<&[_]>) = match &error {
            E::MissingParameter { parameter, allowed } => {
                (Some((*parameter).into()), Some(allowed))
            }
            E::BadParameter { parameter, allowed, .. } => {
                (Some((*parameter).into()), Some(allowed))
            }
            E::RepeatedParameter { parameter } => (Some((*parameter).into()), None),
            E::UnknownParameter { parameter, known } => (Some(parameter.clone()), Some(known)),
            _ => (None, None),
        };
        let detail = match &error {
            E::Store(error) if error.is_passing() => {
                "the store cannot be read now; the same request may succeed later".into()
            }
            E::Store(_) | E::BrokenOff | E::NoThread(_) => {
                "the rows could not be read; the service log has the reason".into()
            }
            error => error.to_string(),
        };
        let allowed = allowed.map(<[_]>::to_vec);
        Self { parameter, allowed, ..Self::new(status, kind, title, detail) }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, kind, title) = match refusal {
            Refusal::Origin => return Self::bad_form(),
            Refusal::NoToken | Refusal::Malformed | Refusal::Unknown | Refusal::Session => {
                (StatusCode::UNAUTHORIZED, "/problems/unauthorized", "Unauthorized")
            }
            Refusal::Expired(_) => {
                (StatusCode::UNAUTHORIZED, "/problems/token-expired", "Token expired")
            }
            Refusal::Host => {
                (StatusCode::MISDIRECTED_REQUEST, "/problems/host-not-allowed", "Host not allowed")
            }
            Refusal::Downloads { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "/problems/too-many-downloads",
                "Too many downloads",
            ),
        };
        Self::new(status, kind, title, refusal.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(&self)).into_response();
        // Layers that render problems in another form read it from here.
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn serialize_status<S: serde::Serializer>(
    status: &StatusCode,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::*;

    #[track_caller]
    fn check(error: StoreError, status: u16, kind: &str, is_retryable: bool) {
        let problem = Problem::from(ExportError::Store(error));
        assert_eq!((problem.status.as_u16(), problem.kind), (status, kind));
        let response = problem.into_response();
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_retryable);
    }

    #[test]
    fn transient_store_errors_ask_to_retry() {
        check(StoreError::Waiting, 503, "/problems/store-unavailable", true);
        check(StoreError::Torn { pid: 1, millis: 2 }, 503, "/problems/store-unavailable", true);
        check(StoreError::Corrupt { what: "a row".into() }, 500, "/problems/store", false);
    }
}
