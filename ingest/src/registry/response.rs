//! What an answer of the registry means. Pure: status and bytes in, a verdict out.

use serde::Deserialize;

/// A schema as the registry has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// Or [`JSON_SCHEMA`].
    pub text: String,
    pub references: Vec<Reference>,
}

/// Stands for every JSON Schema: its values are read by themselves. No Avro schema is this text.
pub const JSON_SCHEMA: &str = "JSON Schema";

/// Another schema that this one uses by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Reference {
    pub subject: String,
    pub version: i64,
}

/// Why there is no schema. The first two are the record's lot; the others hold it back until
/// they pass, because nothing is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The registry has no such schema.
    Unknown(String),
    /// What the registry has is no schema that can be used.
    Bad(String),
    /// The registry does not talk to us: a setting is wrong, here or there.
    Refused(String),
    /// The registry does not answer as one in good health does, of this schema at least.
    Outage(String),
    /// Nobody answers.
    Silence(String),
}

impl Failure {
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Outage(_) | Self::Silence(_))
    }
}

/// A body as far as it was read.
#[derive(Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// Otherwise it goes on beyond the limit.
    pub is_whole: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Schema(Schema),
    Failure(Failure),
    /// Not found, without a registry's word for it: so answers whatever stands at a wrong path.
    NotFound,
}

/// Of all registries: `404` and two more digits say what was not found.
const NOT_FOUND_CODES: std::ops::RangeInclusive<i64> = 40_400..=40_499;

#[derive(Deserialize)]
struct Message {
    schema: Option<String>,
    #[serde(rename = "schemaType")]
    schema_type: Option<String>,
    references: Option<Vec<Reference>>,
    error_code: Option<i64>,
}

pub fn judge(status: u16, body: &Body) -> Verdict {
    let message = || serde_json::from_slice::<Message>(&body.bytes).ok();
    let failure = match status {
        200..=299 => return judge_found(body, message()),
        300..=399 => Failure::Refused(format!(
            "it answers with a redirect to another host (status {status}), which is not followed: \
             name that one in registry.urls"
        )),
        401 | 403 => Failure::Refused(format!(
            "it does not let adtrail in (status {status}): check registry.user, registry.password, \
             registry.token and registry.certificate"
        )),
        404 => match message().and_then(|message| message.error_code) {
            Some(code) if NOT_FOUND_CODES.contains(&code) => {
                Failure::Unknown("the registry has no such schema".into())
            }
            _ => return Verdict::NotFound,
        },
        408 | 429 | 500.. => Failure::Outage(format!("it answers with status {status}")),
        _ => Failure::Refused(format!("it answers with status {status}")),
    };
    Verdict::Failure(failure)
}

fn judge_found(body: &Body, message: Option<Message>) -> Verdict {
    if !body.is_whole && body.bytes.trim_ascii_start().starts_with(b"{") {
        return Verdict::Failure(Failure::Bad(
            "the schema, with those it refers to, is longer than 1 MiB".into(),
        ));
    }
    let Some(message) = message else {
        return Verdict::Failure(Failure::Outage("its answer is no JSON of a schema".into()));
    };
    let Some(text) = message.schema else {
        return Verdict::Failure(Failure::Outage("its answer has no schema".into()));
    };
    let kind = message.schema_type.unwrap_or_default();
    let (text, references) = match kind.to_ascii_uppercase().as_str() {
        "" | "AVRO" => (text, message.references.unwrap_or_default()),
        "JSON" => (JSON_SCHEMA.into(), Vec::new()),
        _ => {
            let shown: String = kind.chars().take(20).collect();
            let reason = format!("the schema's type is {shown:?}, adtrail reads Avro and JSON");
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
        let verdict = judge(status, &Body { bytes: body.into(), is_whole: true });
        let verdict = format!("{verdict:?}");
        assert!(verdict.starts_with(expected), "{verdict}");
    }

    #[track_caller]
    fn check_cut(body: &str, expected: &str) {
        let verdict = judge(200, &Body { bytes: body.into(), is_whole: false });
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
    fn of_json_schemas_only_that_they_are_is_kept() {
        let body = r#"{"schema":"{}","schemaType":"JSON","references":[{"name":"n","subject":"s","version":2}]}"#;
        check(200, body, r#"Schema(Schema { text: "JSON Schema", references: [] "#);
    }

    #[test]
    fn what_is_neither_avro_nor_json_is_bad() {
        check(200, r#"{"schema":"x","schemaType":"PROTOBUF"}"#, "Failure(Bad(");
        check_cut(r#" {"schema":"x"#, "Failure(Bad(");
    }

    #[test]
    fn what_is_unknown_is_said_by_a_registry() {
        check(404, r#"{"error_code":40403,"message":"Schema not found"}"#, "Failure(Unknown(");
        check(404, r#"{"error_code":40401}"#, "Failure(Unknown(");
        check(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#, "NotFound");
        check(404, r#"{"error_code":0}"#, "NotFound");
        check(404, "<html>", "NotFound");
        check(404, "", "NotFound");
    }

    #[test]
    fn settings_that_are_wrong() {
        for status in [301, 302, 307, 308, 400, 401, 403, 405, 406, 422] {
            check(status, "", "Failure(Refused(");
        }
    }

    #[test]
    fn outages() {
        for status in [408, 429, 500, 502, 503, 504, 599] {
            check(status, r#"{"error_code":40403}"#, "Failure(Outage(");
        }
        for garbage in ["", "<html>", "{", "[]", "null", "{}", r#"{"schema":5}"#, "\u{0}"] {
            check(200, garbage, "Failure(Outage(");
        }
        check_cut("<html>", "Failure(Outage(");
    }
}
