//! Judges the response to a callback: by its status, and by what the network says in the body.

use reqwest::StatusCode;
use serde_json::Value;

/// A longer text is not a code and is not shown: it could have a part of a token.
const CODE_CHARS_MAX: usize = 40;

/// What a body of a response with status 2xx says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Success {
    AnyBody,
    /// The body is JSON, and this field says whether the network has taken the callback.
    Field {
        /// The names of objects and of the field, separated by dots.
        path: Box<str>,
        /// The texts of success.
        values: Vec<Box<str>>,
        /// The texts of failures that would be the same again.
        refused: Vec<Box<str>>,
    },
}

/// What a response means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Taken,
    /// Another attempt may succeed.
    Failed(String),
    /// Another attempt would get the same response.
    Refused(String),
}

impl Verdict {
    pub fn of(status: StatusCode, body: &[u8], success: &Success) -> Self {
        let code = status.as_u16();
        match code {
            200..=299 => success.judge(code, body),
            300..=399 => Self::Failed(format!("status {code}: redirects are not followed")),
            408 | 425 | 429 => Self::Failed(format!("status {code}")),
            400..=499 => Self::Refused(format!("status {code}")),
            _ => Self::Failed(format!("status {code}")),
        }
    }
}

impl Success {
    fn judge(&self, status: u16, body: &[u8]) -> Verdict {
        let Self::Field { path, values, refused } = self else { return Verdict::Taken };
        let Ok(json) = serde_json::from_slice::<Value>(body) else {
            return Verdict::Failed(format!("status {status}, but the body is not JSON"));
        };
        let Some(found) = path.split('.').try_fold(&json, |value, name| value.get(name)) else {
            return Verdict::Failed(format!("status {status}, but the body has no {path}"));
        };
        let text = match found {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_in = |list: &[Box<str>]| list.iter().any(|known| **known == *text);
        let shown: String = text.chars().filter(|c| !c.is_control()).collect();
        let reason = || match shown.chars().count() {
            0..=CODE_CHARS_MAX => format!("status {status}, {path} {shown}"),
            count => format!("status {status}, {path} is a text of {count} characters"),
        };
        match (is_in(values), is_in(refused)) {
            (true, _) => Verdict::Taken,
            (false, true) => Verdict::Refused(reason()),
            (false, false) => Verdict::Failed(reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(status: u16, body: &str) -> Verdict {
        let success = Success::Field {
            path: "data.code".into(),
            values: vec!["0".into(), "OK".into()],
            refused: vec!["7".into()],
        };
        Verdict::of(StatusCode::from_u16(status).unwrap(), body.as_bytes(), &success)
    }

    #[track_caller]
    fn check(status: u16, body: &str, expected: &Verdict) {
        assert_eq!(judge(status, body), *expected);
    }

    #[test]
    fn a_network_says_in_the_body_what_it_has_taken() {
        let failed = |reason: &str| Verdict::Failed(reason.to_owned());
        check(200, r#"{"data":{"code":0}}"#, &Verdict::Taken);
        check(201, r#"{"data":{"code":"OK"}}"#, &Verdict::Taken);
        check(200, r#"{"data":{"code":5}}"#, &failed("status 200, data.code 5"));
        let refused = Verdict::Refused("status 200, data.code 7".to_owned());
        check(200, r#"{"data":{"code":"7"}}"#, &refused);
        let long = format!(r#"{{"data":{{"code":"{}"}}}}"#, "x".repeat(41));
        check(200, &long, &failed("status 200, data.code is a text of 41 characters"));
        check(200, r#"{"code":0}"#, &failed("status 200, but the body has no data.code"));
        check(200, "<html>", &failed("status 200, but the body is not JSON"));
        check(200, "", &failed("status 200, but the body is not JSON"));
    }

    #[test]
    fn a_status_says_whether_to_try_again() {
        let is_failed = |status| matches!(judge(status, ""), Verdict::Failed(_));
        let is_refused = |status| matches!(judge(status, ""), Verdict::Refused(_));
        for status in [301, 307, 408, 425, 429, 500, 503, 599] {
            assert!(is_failed(status), "{status}");
        }
        for status in [400, 401, 403, 404, 410, 451] {
            assert!(is_refused(status), "{status}");
        }
        let any = Verdict::of(StatusCode::NO_CONTENT, b"", &Success::AnyBody);
        assert_eq!(any, Verdict::Taken);
    }
}
