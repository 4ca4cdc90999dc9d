//! Names of exported files.

use attribution::facts::printable::is_unprintable;
use attribution::rules::policy::AppPolicy;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::ExportQuery;

/// File systems accept names of 255 bytes; report, range, zone, extension and a prefix have at most 155.
const KEY_BYTES_MAX: usize = 100;

/// What RFC 8187 requires to be escaped, and some more.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'+');

impl ExportQuery {
    /// Returns a file name in the script of the app's key.
    pub(crate) fn file_name(&self, app: &AppPolicy) -> String {
        let is_letter = |c: char| !c.is_ascii() && !c.is_whitespace() && !is_unprintable(c);
        self.named_file(app, |c| is_safe(c) || is_letter(c))
    }

    /// Returns a file name with characters that are safe in any file system and shell.
    pub(crate) fn ascii_file_name(&self, app: &AppPolicy) -> String {
        self.named_file(app, is_safe)
    }

    /// Returns a `Content-Disposition`. Clients that do not know `filename*` of RFC 6266, such as curl, take `filename`.
    pub(crate) fn content_disposition(&self, prefix: &str, app: &AppPolicy) -> String {
        let (ascii, name) = (self.ascii_file_name(app), self.file_name(app));
        let extended = (name != ascii)
            .then(|| format!("; filename*=UTF-8''{prefix}{}", utf8_percent_encode(&name, ESCAPED)));
        format!("attachment; filename=\"{prefix}{ascii}\"{}", extended.unwrap_or_default())
    }

    fn named_file(&self, app: &AppPolicy, is_kept: impl Fn(char) -> bool) -> String {
        let safe = |part: &str| -> String {
            part.chars().map(|c| if is_kept(c) { c } else { '-' }).collect()
        };
        let key = safe(&app.key);
        // Programs take a name with a leading hyphen as an option, and hide one with a leading dot.
        let key = match key.trim_start_matches(['-', '.']) {
            "" => format!("app-{}", app.pid.0),
            key => cut(key).to_owned(),
        };
        let report = self.report.as_ref().map(|report| report.kind.name());
        // Without a colon, which would become another hyphen.
        let zone = self.zone.name().replace(':', "");
        let range = [&*self.from_text, &self.to_text, &zone];
        let parts = report.into_iter().chain(range).map(safe);
        let parts: Vec<_> = [key].into_iter().chain(parts).collect();
        format!("{}.{}", parts.join("_"), self.format.name())
    }
}

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-')
}

/// Cuts a key between two characters.
fn cut(key: &str) -> &str {
    let ends = key.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|end| *end <= KEY_BYTES_MAX).last();
    key.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::Pid;

    use super::*;
    use crate::query::Format;

    fn query(from: &'static str, to: &'static str, zone: &'static str) -> ExportQuery {
        let parameters = [("from", from), ("to", to), ("timezone", zone)];
        ExportQuery::parse(Format::Csv, parameters).unwrap()
    }

    #[track_caller]
    fn check_name(from: &'static str, to: &'static str, zone: &'static str, expected: &str) {
        let app = AppPolicy::new(Pid(1), "a/\"b\"_é");
        assert_eq!(query(from, to, zone).ascii_file_name(&app), expected);
    }

    #[test]
    fn ascii_file_names_are_safe() {
        check_name("2026-03-10", "2026-03-11", "UTC", "a--b---_2026-03-10_2026-03-11_UTC.csv");
        check_name(
            "2026-03-10T08:00",
            "2026-03-10T08:00:00.5+08:00",
            "asia/shanghai",
            "a--b---_2026-03-10T08-00_2026-03-10T08-00-00.5+08-00_Asia-Shanghai.csv",
        );
        check_name("2026-03-10", "2026-03-11", " 8", "a--b---_2026-03-10_2026-03-11_+0800.csv");
    }

    #[test]
    fn keys_in_other_scripts_have_a_second_name() {
        let query = query("2026-03-10", "2026-03-11", "UTC");
        let check = |key: &str, ascii: &str, extended: Option<&str>| {
            let range = "_2026-03-10_2026-03-11_UTC.csv";
            let extended = extended.map(|name| format!("; filename*=UTF-8''summary_{name}{range}"));
            let expected = format!(
                "attachment; filename=\"summary_{ascii}{range}\"{}",
                extended.unwrap_or_default()
            );
            let found = query.content_disposition("summary_", &AppPolicy::new(Pid(7), key));
            assert_eq!(found, expected);
        };
        check("app-x", "app-x", None);
        check("app y_\"z\"", "app-y--z-", None);
        check("..-x", "x", None);
        check("游戏", "app-7", Some("%E6%B8%B8%E6%88%8F"));
        check("游戏-x+1", "x+1", Some("%E6%B8%B8%E6%88%8F-x+1"));
        check("é\u{202e}\u{a0}é", "app-7", Some("%C3%A9--%C3%A9"));
        // 102 bytes would be too many for some file systems.
        check(&"游".repeat(34), "app-7", Some(&"%E6%B8%B8".repeat(33)));
    }
}
