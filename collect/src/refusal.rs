//! What an event became, and why if it was refused.

use axum::http::StatusCode;
use ingest::decode::DecodeError;
use ingest::kafka::event_producer::ProduceError;
use serde::Serialize;

use crate::dialect::read::BadParameter;
use crate::metrics::UNAVAILABLE;
use crate::spool::SpoolError;

/// What an event became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventOutcome {
    /// Kafka has acknowledged it.
    Produced,
    /// Kafka had not acknowledged it, and it was written to the spool.
    Spooled,
    Refused(Box<Refusal>),
}

impl EventOutcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Produced => "produced",
            Self::Spooled => "spooled",
            Self::Refused(_) => REFUSED,
        }
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Produced | Self::Spooled => None,
            Self::Refused(refusal) => Some(refusal),
        }
    }
}

/// The outcome of an event, or of a whole request, that was refused.
pub(crate) const REFUSED: &str = "refused";

/// Why an event is neither in Kafka nor in the spool. The texts contain no value of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// As in dead letters, or `bad_parameter`, `unavailable`, `rate_limited` or `disconnected`.
    pub code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub detail: String,
}

/// The code of an event beyond the rate of its app, which can be sent again.
const RATE_LIMITED: &str = "rate_limited";

impl Refusal {
    /// Returns the status of a response that consists of this refusal.
    pub fn status(&self) -> StatusCode {
        match self.code {
            UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
            RATE_LIMITED => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub fn rate_limited() -> Self {
        let detail = "too many events of this app in a second; send it again".to_owned();
        Self { code: RATE_LIMITED, field: None, detail }
    }

    pub fn bad_value(field: &str, detail: impl Into<String>) -> Self {
        Self { code: "bad_value", field: Some(field.to_owned()), detail: detail.into() }
    }

    /// Names the parameter of a report instead of the event's field that it became.
    pub fn with_parameter(self, parameter: &str) -> Self {
        let rest = self.field.as_deref().and_then(|field| self.detail.strip_prefix(field));
        let detail = rest.map_or_else(|| self.detail.clone(), |rest| format!("{parameter}{rest}"));
        Self { code: self.code, field: Some(parameter.to_owned()), detail }
    }

    /// The client has disconnected before Kafka has answered.
    pub fn disconnected() -> Self {
        let detail = "the client has disconnected; the event may be in Kafka".to_owned();
        Self { code: "disconnected", field: None, detail }
    }

    pub fn too_large(bytes_max: usize) -> Self {
        let detail = format!("expected an event of at most {bytes_max} bytes");
        Self { code: "too_large", field: None, detail }
    }
}

impl From<&BadParameter> for Refusal {
    fn from(bad: &BadParameter) -> Self {
        let field = Some(bad.parameter.to_string());
        Self { code: "bad_parameter", field, detail: bad.to_string() }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        let DecodeError { code, field, message } = error;
        Self { code: code.name(), field, detail: without_offset(&message) }
    }
}

/// Leaves out the offset of a field, which is that in the event for Kafka: the client has sent other text.
fn without_offset(message: &str) -> String {
    let Some((field, rest)) = message.split_once(" at byte ") else { return message.to_owned() };
    format!("{field}{}", rest.trim_start_matches(|character: char| character.is_ascii_digit()))
}

impl From<ProduceError> for Refusal {
    fn from(error: ProduceError) -> Self {
        let (code, detail) = match &error {
            ProduceError::TooLarge => ("too_large", error.to_string()),
            ProduceError::QueueFull | ProduceError::BatchTooLarge => {
                (UNAVAILABLE, format!("{error}; send it again"))
            }
            // The reason is the operator's.
            ProduceError::Unacknowledged(_) => {
                (UNAVAILABLE, "kafka has not acknowledged the event; send it again".to_owned())
            }
        };
        Self { code, field: None, detail }
    }
}

impl From<SpoolError> for Refusal {
    fn from(error: SpoolError) -> Self {
        let detail = format!("kafka has not acknowledged the event, and {error}; send it again");
        Self { code: UNAVAILABLE, field: None, detail }
    }
}

#[cfg(test)]
mod tests {
    use ingest::TopicKind;
    use ingest::decode::decode;

    use super::*;

    #[test]
    fn an_invalid_field_has_no_offset() {
        let config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap();
        let event = br#"{"app":"app-x","name":"n","time":1}"#;
        let error = decode(event, Some(TopicKind::Effects), &config.policy).unwrap_err();
        assert!(error.message.starts_with("time at byte 33 is before 2008; "), "{error}");
        let refusal = Refusal::from(error);
        assert!(refusal.detail.starts_with("time is before 2008; "), "{}", refusal.detail);
        assert_eq!(without_offset("app is missing"), "app is missing");
    }
}
