//! The download as a command for a POSIX shell.

use axum::http::{HeaderMap, header};

use crate::http::access::session;

/// Returns a command that works as printed. It takes the token from the environment, which keeps it out of the
/// shell's history.
pub(crate) fn curl(headers: &HeaderMap, target: &str, file: &str, has_token: bool) -> String {
    let token = if has_token { "-H \"Authorization: Bearer $ADTRAIL_TOKEN\" " } else { "" };
    let address = format!("{}{target}", origin(headers));
    format!("curl --fail-with-body {token}-o {} {}", word(file), word(&address))
}

/// Returns the origin of this page.
fn origin(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let host = if !host.is_empty() && host.chars().all(is_safe) { host } else { "localhost" };
    format!("{}://{host}", session::scheme(headers))
}

/// Quotes a word for a shell.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_shell_unquotes_the_same_text() {
        for text in ["plain", "a'b", "'", "$HOME `id` \"x\" \\ !", "a\nb"] {
            let script = format!("printf %s {}", word(text));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }

    #[test]
    fn the_command_has_the_origin_of_the_page() {
        let check = |host: &'static str, proto: &'static str, has_token, expected: &str| {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static(host)),
                ("x-forwarded-proto".parse().unwrap(), HeaderValue::from_static(proto)),
            ]);
            assert_eq!(curl(&headers, "/v1/x?a=b&c", "x.csv", has_token), expected);
        };
        check(
            "127.0.0.1:8080",
            "",
            false,
            "curl --fail-with-body -o 'x.csv' 'http://127.0.0.1:8080/v1/x?a=b&c'",
        );
        check(
            "a.example",
            "https",
            true,
            "curl --fail-with-body -H \"Authorization: Bearer $ADTRAIL_TOKEN\" -o 'x.csv' \
             'https://a.example/v1/x?a=b&c'",
        );
        check("a'b", "", false, "curl --fail-with-body -o 'x.csv' 'http://localhost/v1/x?a=b&c'");
    }
}
