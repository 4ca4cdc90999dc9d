//! Interprets the responses of the registry. Does no I/O: takes a status and a body.

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

/// Why a schema could not be fetched, with a reason for logs and dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub reason: String,
}

/// The kinds of failures. If several URLs fail, the greatest failure is returned: a statement about the schema outranks
/// failures of other URLs, and any response outranks a missing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// No response arrived.
    NoResponse,
    /// The registry responds with an error, or with a malformed body, at least for this schema.
    Outage,
    /// The registry rejects the request: a setting of adtrail or of the registry is wrong.
    Refused,
    /// The registry has no such schema.
    Unknown,
    /// The registry has the schema, but it cannot be used.
    Bad,
}

impl FailureKind {
    pub fn because(self, reason: impl Into<String>) -> Failure {
        Failure { kind: self, reason: reason.into() }
    }
}

impl Failure {
    /// Returns true if the request is retried while the record waits. Other failures are final and make the record a
    /// dead letter.
    pub fn is_transient(&self) -> bool {
        self.kind <= FailureKind::Refused
    }
}

/// The body of a response, up to the length limit.
#[derive(Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// False if the body is longer than the limit.
    pub is_whole: bool,
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

/// Interprets a response. Returns `None` for status 404 without a registry's error code, the response of any server to
/// a wrong path.
pub fn interpret(status: u16, body: &Body) -> Option<Result<Schema, Failure>> {
    let message = || serde_json::from_slice::<Message>(&body.bytes).ok();
    Some(match status {
        200..=299 => interpret_success(body, message()),
        300..=399 => Err(FailureKind::Refused.because(format!(
            "redirected to another host (status {status}), which is not followed; put the URL of \
             that host in registry.urls"
        ))),
        401 | 403 => Err(FailureKind::Refused.because(format!(
            "denied access (status {status}); check registry.user, registry.password, \
             registry.token and registry.certificate"
        ))),
        404 => {
            let code = message().and_then(|message| message.error_code);
            code.filter(|code| NOT_FOUND_CODES.contains(code))?;
            Err(FailureKind::Unknown.because("the registry has no such schema"))
        }
        408 | 429 | 500.. => {
            Err(FailureKind::Outage.because(format!("responded with status {status}")))
        }
        _ => Err(FailureKind::Refused.because(format!("responded with status {status}"))),
    })
}

fn interpret_success(body: &Body, message: Option<Message>) -> Result<Schema, Failure> {
    if !body.is_whole && body.bytes.trim_ascii_start().starts_with(b"{") {
        let reason = "the schema with its references is longer than 1 MiB";
        return Err(FailureKind::Bad.because(reason));
    }
    let outage = |reason| FailureKind::Outage.because(reason);
    let message = message.ok_or_else(|| outage("the response is not the JSON of a schema"))?;
    let text = message.schema.ok_or_else(|| outage("the response has no schema"))?;
    let kind = message.schema_type.unwrap_or_default();
    match kind.to_ascii_uppercase().as_str() {
        "" | "AVRO" => Ok(Schema { text, references: message.references.unwrap_or_default() }),
        "JSON" => Ok(Schema { text: JSON_SCHEMA.into(), references: Vec::new() }),
        _ => {
            let shown: String = kind.chars().take(20).collect();
            let reason = format!("the schema's type is {shown:?}; expected AVRO or JSON");
            Err(FailureKind::Bad.because(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_body(status: u16, body: Body, expected: &str) {
        let found = match interpret(status, &body) {
            None => "not found".to_owned(),
            Some(Ok(schema)) => format!("{schema:?}"),
            Some(Err(failure)) => format!("{:?}", failure.kind),
        };
        assert!(found.starts_with(expected), "{found}");
    }

    #[track_caller]
    fn check(status: u16, body: &str, expected: &str) {
        check_body(status, Body { bytes: body.into(), is_whole: true }, expected);
    }

    #[track_caller]
    fn check_truncated(body: &str, expected: &str) {
        check_body(200, Body { bytes: body.into(), is_whole: false }, expected);
    }

    #[test]
    fn avro_schemas_are_accepted_with_their_references() {
        check(200, r#"{"schema":"\"int\""}"#, r#"Schema { text: "\"int\"", references: [] "#);
        check(200, r#"{"schema":"x","schemaType":"AVRO","references":[]}"#, "Schema {");
        check(200, r#"{"schema":"x","schemaType":null,"references":null,"id":3}"#, "Schema {");
        let body = r#"{"schema":"x","references":[{"name":"n","subject":"s","version":2}]}"#;
        check(200, body, r#"Schema { text: "x", references: [Reference { subject: "s", "#);
    }

    #[test]
    fn the_text_of_a_json_schema_is_dropped() {
        let body = r#"{"schema":"{}","schemaType":"JSON","references":[{"name":"n","subject":"s","version":2}]}"#;
        check(200, body, r#"Schema { text: "JSON Schema", references: [] "#);
    }

    #[test]
    fn a_schema_that_is_neither_avro_nor_json_or_too_long_is_bad() {
        check(200, r#"{"schema":"x","schemaType":"PROTOBUF"}"#, "Bad");
        check_truncated(r#" {"schema":"x"#, "Bad");
    }

    #[test]
    fn a_schema_is_unknown_only_by_a_registrys_error_code() {
        check(404, r#"{"error_code":40403,"message":"Schema not found"}"#, "Unknown");
        check(404, r#"{"error_code":40401}"#, "Unknown");
        check(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#, "not found");
        check(404, r#"{"error_code":0}"#, "not found");
        check(404, "<html>", "not found");
        check(404, "", "not found");
    }

    #[test]
    fn wrong_settings_are_refused() {
        for status in [301, 302, 307, 308, 400, 401, 403, 405, 406, 422] {
            check(status, "", "Refused");
        }
    }

    #[test]
    fn server_errors_and_malformed_bodies_are_outages() {
        for status in [408, 429, 500, 502, 503, 504, 599] {
            check(status, r#"{"error_code":40403}"#, "Outage");
        }
        for garbage in ["", "<html>", "{", "[]", "null", "{}", r#"{"schema":5}"#, "\u{0}"] {
            check(200, garbage, "Outage");
        }
        check_truncated("<html>", "Outage");
    }
}
