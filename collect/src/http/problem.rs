//! Error responses: `application/problem+json` of RFC 9457. No text contains a value of the request.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::dialect::read::BadParameter;
use crate::refusal::Refusal;

/// When a client may repeat a request that Kafka has not acknowledged.
const UNAVAILABLE_RETRY_AFTER_SECONDS: u32 = 10;
/// The same for one beyond a limit, which is of a second.
const RATE_RETRY_AFTER_SECONDS: u32 = 1;

const TOO_MANY_REQUESTS: (&str, &str) = ("/problems/too-many-requests", "Too many requests");

/// A problem. `kind` is stable; the texts may change.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    #[serde(serialize_with = "serialize_status")]
    status: StatusCode,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<Box<str>>,
    /// The detail once more, where clients of AppsFlyer expect it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Set if the request was refused before its events were read.
    #[serde(skip)]
    reason: Option<&'static str>,
}

/// Why a request was refused before its events were read, in the extensions of its response.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub name: &'static str,
    pub detail: String,
}

const RATE: &str = "rate";
const BEYOND_RATE: &str = "too many requests of this address in a second \
                           (collect.requests_per_address_max); send it again";

impl Reason {
    /// A person is redirected, but the click is not an event.
    pub fn beyond_rate() -> Self {
        Self { name: RATE, detail: BEYOND_RATE.to_owned() }
    }
}

impl Problem {
    /// A request that was refused before its events were read.
    fn of_request(
        status: StatusCode,
        reason: &'static str,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        let detail = detail.into();
        Self { kind, title, status, detail, parameter: None, message: None, reason: Some(reason) }
    }

    pub fn url_too_long(bytes_max: usize) -> Self {
        Self::of_request(
            StatusCode::URI_TOO_LONG,
            "url",
            "/problems/url-too-long",
            "URL too long",
            format!("expected a URL of at most {bytes_max} bytes"),
        )
    }

    pub fn too_many_requests() -> Self {
        let (kind, title) = TOO_MANY_REQUESTS;
        Self::of_request(StatusCode::TOO_MANY_REQUESTS, RATE, kind, title, BEYOND_RATE)
    }

    pub fn body_too_large(bytes_max: usize) -> Self {
        Self::of_request(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body",
            "/problems/body-too-large",
            "Body too large",
            format!("expected a body of at most {bytes_max} bytes (collect.body_bytes_max)"),
        )
    }

    pub fn slow_body() -> Self {
        Self::of_request(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            "/problems/request-timeout",
            "Request timeout",
            "the whole body must arrive within 10 seconds; send it again",
        )
    }

    pub fn bad_body(detail: impl Into<String>) -> Self {
        Self::of_request(
            StatusCode::BAD_REQUEST,
            "body",
            "/problems/bad-body",
            "Unreadable body",
            detail,
        )
    }

    pub fn media_type(expected: &str) -> Self {
        Self::of_request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "body",
            "/problems/media-type",
            "Media type not supported",
            format!("Content-Type: expected {expected}"),
        )
    }

    pub fn unauthorized() -> Self {
        Self::of_request(
            StatusCode::UNAUTHORIZED,
            "token",
            "/problems/unauthorized",
            "Unauthorized",
            "expected Authorization: Bearer with one of the [[write_tokens]] of the settings",
        )
    }

    /// An app that does not exist.
    pub fn unknown_app() -> Self {
        Self::no_app("the app is not in the settings")
    }

    /// An app that does not exist, or that the token may not write.
    pub fn unwritable_app() -> Self {
        Self::no_app("the app is not in the settings, or this token may not write its events")
    }

    fn no_app(detail: &str) -> Self {
        Self::of_request(
            StatusCode::NOT_FOUND,
            "app",
            "/problems/unknown-app",
            "Unknown app",
            detail,
        )
    }

    pub fn unknown_channel() -> Self {
        Self::of_request(
            StatusCode::NOT_FOUND,
            "channel",
            "/problems/unknown-channel",
            "Unknown channel",
            "the channel is not in the settings",
        )
    }

    pub fn unknown_link() -> Self {
        Self::of_request(
            StatusCode::NOT_FOUND,
            "link",
            "/problems/unknown-link",
            "Unknown link",
            "the link is not in the settings",
        )
    }

    /// Without a random number, a click has no id.
    pub fn no_random() -> Self {
        Self::of_request(
            StatusCode::SERVICE_UNAVAILABLE,
            "random",
            "/problems/random",
            "No random numbers",
            "the system's random number generator failed",
        )
    }

    pub fn too_many_parameters() -> Self {
        Self::of_request(
            StatusCode::BAD_REQUEST,
            "url",
            "/problems/too-many-parameters",
            "Too many parameters",
            "expected at most 256 parameters",
        )
    }

    pub fn method() -> Self {
        Self::of_request(
            StatusCode::METHOD_NOT_ALLOWED,
            "method",
            "/problems/method-not-allowed",
            "Method not allowed",
            "the header Allow has the methods of this path",
        )
    }

    /// A report whose event is neither in Kafka nor in the spool.
    pub fn refused(refusal: &Refusal) -> Self {
        let status = refusal.status();
        let (kind, title) = match status {
            StatusCode::SERVICE_UNAVAILABLE => ("/problems/unavailable", "Kafka unavailable"),
            StatusCode::TOO_MANY_REQUESTS => TOO_MANY_REQUESTS,
            _ => ("/problems/bad-event", "Invalid event"),
        };
        let parameter = refusal.field.as_deref().map(Box::from);
        let detail = refusal.detail.clone();
        Self { kind, title, status, detail, parameter, message: None, reason: None }
    }

    pub fn bad_parameter(error: &BadParameter) -> Self {
        Self {
            kind: "/problems/bad-parameter",
            title: "Bad parameter",
            status: StatusCode::BAD_REQUEST,
            detail: error.to_string(),
            parameter: Some(error.parameter.clone()),
            message: None,
            reason: None,
        }
    }

    /// Adds the member in which AppsFlyer's responses have the detail.
    pub fn with_message(self) -> Self {
        Self { message: Some(self.detail.clone()), ..self }
    }
}

/// Answers unknown paths.
pub(crate) async fn not_found() -> Problem {
    Problem::of_request(
        StatusCode::NOT_FOUND,
        "path",
        "/problems/not-found",
        "Not found",
        "nothing is at this path",
    )
}

/// Answers known paths with another method.
pub(crate) async fn method_not_allowed() -> Problem {
    Problem::method()
}

/// Answers `HEAD` where a request reports an event, which `HEAD` must not.
pub(crate) async fn no_head() -> Response {
    let mut response = Problem::method().into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
    response
}

/// Lets a client know when to repeat a request, if it may succeed then.
pub(crate) fn retry_later(response: &mut Response) {
    let seconds = match response.status() {
        StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE_RETRY_AFTER_SECONDS,
        StatusCode::TOO_MANY_REQUESTS => RATE_RETRY_AFTER_SECONDS,
        _ => return,
    };
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        let media_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        retry_later(&mut response);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(Reason { name: reason, detail: self.detail });
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
