//! The id of a request: in the header of its response, and in all log lines about it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Span;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LENGTH_MAX: usize = 64;

/// A request extension: the id that the client or a proxy has chosen, or a random one.
#[derive(Debug, Clone)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Takes the id of the client if it has at most 64 letters, digits, dots, hyphens and underscores, which can stand in
    /// any log.
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let mut chosen = headers.get_all(REQUEST_ID).iter();
        match (chosen.next(), chosen.next()) {
            (Some(id), None) if is_allowed(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    fn random() -> Self {
        let number = fastrand::u64(..);
        // A number in decimal needs no check.
        Self(HeaderValue::try_from(format!("{number:016x}")).unwrap_or_else(|_| number.into()))
    }

    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Returns the span of the log lines about the request. It has the level of errors, so that every line has the id.
    pub(super) fn span(&self) -> Span {
        tracing::error_span!("request", request_id = self.as_str())
    }

    pub(super) fn into_header(self) -> HeaderValue {
        self.0
    }
}

fn is_allowed(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    (1..=LENGTH_MAX).contains(&id.len()) && id.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether the id of a request with these headers is the first of them.
    #[track_caller]
    fn check(chosen: &[&str], is_taken: bool) {
        let mut headers = HeaderMap::new();
        for id in chosen {
            headers.append(REQUEST_ID, HeaderValue::from_str(id).unwrap());
        }
        let id = RequestId::new(&headers);
        assert!(is_allowed(id.0.as_bytes()), "{id:?}");
        assert_eq!(chosen.first() == Some(&id.as_str()), is_taken, "{id:?}");
    }

    #[test]
    fn an_id_of_the_client_is_taken_if_it_can_stand_in_a_log() {
        check(&["req-1_A.b"], true);
        check(&[&"x".repeat(LENGTH_MAX)], true);
        check(&[&"x".repeat(LENGTH_MAX + 1)], false);
        check(&[], false);
        check(&[""], false);
        check(&["a b"], false);
        check(&["a\"b"], false);
        check(&["a=b"], false);
        check(&["[31m"], false);
        check(&["a", "b"], false);
    }

    #[test]
    fn random_ids_differ() {
        let [first, second] = [(); 2].map(|()| RequestId::new(&HeaderMap::new()));
        assert_ne!(first.as_str(), second.as_str());
    }
}
