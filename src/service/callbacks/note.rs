//! What the outbox keeps of an attempt, for people who look for the reason of a failure.

use callback::Attempt;

/// The longest parts of a note, in characters. The outbox cuts what is too long in all.
const ANSWER_CHARS_MAX: usize = 300;
const URL_CHARS_MAX: usize = 400;

/// Returns the reason, the response and the request, a line for each; the body of the request is the last one.
pub fn note(attempt: Option<&Attempt>) -> Box<str> {
    let Some(attempt) = attempt else { return Box::default() };
    let Attempt { at_ms: _, status: _, reason, request, maybe_sent: _, answer } = attempt;
    let mut lines = vec![reason.to_string()];
    if !answer.is_empty() {
        lines.push(format!("response: {}", shortened(answer, ANSWER_CHARS_MAX)));
    }
    if !request.url.is_empty() {
        let url = shortened(&request.url, URL_CHARS_MAX);
        lines.push(format!("request: {} {url}", request.method));
    }
    if !request.body.is_empty() {
        lines.push(request.body.to_string());
    }
    lines.join("\n").into()
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use callback::Shown;

    use super::*;

    #[test]
    fn a_note_has_reason_response_and_request() {
        let request = Shown {
            method: "POST".into(),
            url: "https://a.example/".into(),
            body: "{\"a\":1}".into(),
        };
        let attempt = Attempt {
            at_ms: 1,
            status: Some(200),
            reason: "status 200, code 7".into(),
            request,
            maybe_sent: false,
            answer: "é".repeat(400).into(),
        };
        let note = note(Some(&attempt));
        let lines: Vec<&str> = note.lines().collect();
        assert_eq!(
            (lines[0], lines[2]),
            ("status 200, code 7", "request: POST https://a.example/")
        );
        assert_eq!((lines[1].chars().count(), lines[3]), (311, "{\"a\":1}"));
    }

    #[test]
    fn without_a_request_there_is_only_the_reason() {
        let (request, answer) = (Shown::default(), Box::default());
        let (reason, maybe_sent) = ("x".into(), false);
        let attempt = Attempt { at_ms: 1, status: None, reason, request, maybe_sent, answer };
        assert_eq!((&*note(Some(&attempt)), &*note(None)), ("x", ""));
    }
}
