//! Interprets the responses of the registry. Pure: status and bytes in, a verdict out.

use serde::Deserialize;

/// A schema as the registry returned it.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// The text of an Avro schema, or [`JSON_SCHEMA`].
    pub text: String,
    pub references: Vec<Reference>,
}

/// Stands for any JSON Schema: JSON values are decoded without their schema. It is not a valid Avro schema.
pub const JSON_SCHEMA: &str = "JSON Schema";

/// Another schema whose types this one uses by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Reference {
    pub subject: String,
    pub version: i64,
}

/// Why a schema could not be fetched. The first two are final and make a record a dead letter. The others may pass;
/// until then the record waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The registry has no such schema.
    Unknown(String),
    /// The registry has the schema, but it cannot be used.
    Bad(String),
    /// The registry rejects the request: a setting of adtrail or of the registry is wrong.
    Refused(String),
    /// The registry responds with an error, or with a malformed body, at least for this schema.
    Outage(String),
    /// No response arrived.
    NoResponse(String),
}

impl Failure {
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Outage(_) | Self::NoResponse(_))
    }
}

/// The body of a response, up to the length limit.
#[derive(Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// False if the body is longer than the limit.
    pub is_whole: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Schema(Schema),
    Failure(Failure),
    /// Status 404 without a registry's error code, as any server responds to a wrong path.
    NotFound,
}

/// Error codes by which all registries report what was not found: `404` and two more digits.
const NOT_FOUND_CODES: std::ops::RangeInclusive<i64> = 40_400..=40_499;

#[derive(Deserialize)]
struct Message {
    schema: Option<String>,
    #[serde(rename = "schemaType")]
    schema_type: Option<String>,
    references: Option<Vec<Reference>>,
    error_code: Option<i64>,
}

pub fn interpret(status: u16, body: &Body) -> Verdict {
    let message = || serde_json::from_slice::<Message>(&body.bytes).ok();
    let failure = match status {
        200..=299 => return interpret_success(body, message()),
        300..=399 => Failure::Refused(format!(
            "redirected to another host (status {status}), which is not followed; put the URL of \
             that host in registry.urls"
        )),
        401 | 403 => Failure::Refused(format!(
            "denied access (status {status}); check registry.user, registry.password, \
             registry.token and registry.certificate"
        )),
        404 => match message().and_then(|message| message.error_code) {
            Some(code) if NOT_FOUND_CODES.contains(&code) => {
                Failure::Unknown("the registry has no such schema".into())
            }
            _ => return Verdict::NotFound,
        },
        408 | 429 | 500.. => Failure::Outage(format!("responded with status {status}")),
        _ => Failure::Refused(format!("responded with status {status}")),
    };
    Verdict::Failure(failure)
}

fn interpret_success(body: &Body, message: Option<Message>) -> Verdict {
    if !body.is_whole && body.bytes.trim_ascii_start().starts_with(b"{") {
        return Verdict::Failure(Failure::Bad(
            "the schema with its references is longer than 1 MiB".into(),
        ));
    }
    let Some(message) = message else {
        return Verdict::Failure(Failure::Outage(
            "the response is not the JSON of a schema".into(),
        ));
    };
    let Some(text) = message.schema else {
        return Verdict::Failure(Failure::Outage("the response has no schema".into()));
    };
    let kind = message.schema_type.unwrap_or_default();
    let (text, references) = match kind.to_ascii_uppercase().as_str() {
        "" | "AVRO" => (text, message.references.unwrap_or_default()),
        "JSON" => (JSON_SCHEMA.into(), Vec::new()),
        _ => {
            let shown: String = kind.chars().take(20).collect();
            let reason = format!("the schema's type is {shown:?}; expected AVRO or JSON");
            return Verdict::Failure(Failure::Bad(reason));
        }
    };
    Verdict::Schema(Schema { text, references })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: &str) {
        let verdict = interpret(status, &Body { bytes: body.into(), is_whole: true });
        let verdict = format!("{verdict:?}");
        assert!(verdict.starts_with(expected), "{verdict}");
    }

    #[track_caller]
    fn check_cut(body: &str, expected: &str) {
        let verdict = interpret(200, &Body { bytes: body.into(), is_whole: false });
        let verdict = format!("{verdict:?}");
        assert!(verdict.starts_with(expected), "{verdict}");
    }

    #[test]
    fn schemas() {
        check(
            200,
            r#"{"schema":"\"int\""}"#,
            r#"Schema(Schema { text: "\"int\"", references: [] "#,
        );
        check(200, r#"{"schema":"x","schemaType":"AVRO","references":[]}"#, "Schema(");
        check(200, r#"{"schema":"x","schemaType":null,"references":null,"id":3}"#, "Schema(");
        let body = r#"{"schema":"x","references":[{"name":"n","subject":"s","version":2}]}"#;
        check(200, body, r#"Schema(Schema { text: "x", references: [Reference { subject: "s", "#);
    }

    #[test]
    fn the_text_of_a_json_schema_is_dropped() {
        let body = r#"{"schema":"{}","schemaType":"JSON","references":[{"name":"n","subject":"s","version":2}]}"#;
        check(200, body, r#"Schema(Schema { text: "JSON Schema", references: [] "#);
    }

    #[test]
    fn a_schema_that_is_neither_avro_nor_json_or_too_long_is_bad() {
        check(200, r#"{"schema":"x","schemaType":"PROTOBUF"}"#, "Failure(Bad(");
        check_cut(r#" {"schema":"x"#, "Failure(Bad(");
    }

    #[test]
    fn a_schema_is_unknown_only_by_a_registrys_error_code() {
        check(404, r#"{"error_code":40403,"message":"Schema not found"}"#, "Failure(Unknown(");
        check(404, r#"{"error_code":40401}"#, "Failure(Unknown(");
        check(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#, "NotFound");
        check(404, r#"{"error_code":0}"#, "NotFound");
        check(404, "<html>", "NotFound");
        check(404, "", "NotFound");
    }

    #[test]
    fn wrong_settings_are_refused() {
        for status in [301, 302, 307, 308, 400, 401, 403, 405, 406, 422] {
            check(status, "", "Failure(Refused(");
        }
    }

    #[test]
    fn server_errors_and_malformed_bodies_are_outages() {
        for status in [408, 429, 500, 502, 503, 504, 599] {
            check(status, r#"{"error_code":40403}"#, "Failure(Outage(");
        }
        for garbage in ["", "<html>", "{", "[]", "null", "{}", r#"{"schema":5}"#, "\u{0}"] {
            check(200, garbage, "Failure(Outage(");
        }
        check_cut("<html>", "Failure(Outage(");
    }
}
