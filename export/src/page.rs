//! The page at `/`: where the downloads are. No script, nothing loaded.

use std::fmt::Write;

use attribution::policy::AppPolicy;
use jiff::civil::Date;
use jiff::{ToSpan, civil};

/// What the page may do: nothing.
pub(crate) const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page, with a link to the last seven days of each app.
pub(crate) fn html(apps: &[&AppPolicy], today: Date) -> String {
    let first = today.checked_sub(6.days()).unwrap_or(civil::Date::MIN);
    let mut items = String::new();
    for app in apps {
        let link = format!("/v1/apps/{}/events.csv?from={first}&to={today}", in_path(&app.key));
        // Writing to a string cannot fail.
        let _ = writeln!(
            items,
            "<li>{} (<code>{}</code>): <a href=\"{link}\">the last 7 days</a></li>",
            escaped(&app.name),
            escaped(&app.key),
            link = escaped(&link),
        );
    }
    if apps.is_empty() {
        items.push_str("<li>No app is configured.</li>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>adtrail</title>\n\
         <h1>adtrail</h1>\n<p>Attributed activations and effects as CSV, by app, for any time \
         range:</p>\n<ul>\n{items}</ul>\n<p><code>/v1/apps/APP/events.csv?from={first}&amp;\
         to={today}T08:00&amp;timezone=Asia/Shanghai&amp;type=activation&amp;\
         fields=event_time,channel</code></p>\n</html>\n"
    )
}

/// A text as one segment of a path.
fn in_path(text: &str) -> String {
    let mut segment = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            segment.push(byte.into());
        } else {
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(character),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use attribution::event::Pid;

    use super::*;

    #[test]
    fn names_are_escaped_and_links_lead_to_the_week() {
        let mut app = AppPolicy::new(Pid(1), "a&b ü\"");
        app.name = "<script>'".into();
        let page = html(&[&app], civil::date(2026, 3, 3));
        assert!(page.contains("<li>&lt;script&gt;&#39; (<code>a&amp;b ü&quot;</code>)"), "{page}");
        let link =
            "href=\"/v1/apps/a%26b%20%C3%BC%22/events.csv?from=2026-02-25&amp;to=2026-03-03\"";
        assert!(page.contains(link), "{page}");
    }
}
