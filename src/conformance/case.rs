//! The format of a case in its file.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Events, settings and the expected rows.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Its folder and file, such as `3-candidates/window-click-edge`.
    pub name: String,
    /// All settings, including the catalogue of the suite.
    pub settings: String,
    /// The events, one line each.
    pub events: Vec<String>,
    /// Number of lines that are not valid events and must be skipped.
    pub left_out: u64,
    /// Total number of rows.
    pub rows: usize,
    pub expect: Vec<Expected>,
}

/// An expected row, identified by `event_id` and, if given, `app` and `event_type`.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// The exact text of columns by name, including the identifying ones.
    pub columns: BTreeMap<String, String>,
}

/// The columns that identify a row.
pub(super) const IDENTITY: [&str; 3] = ["event_id", "app", "event_type"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    why: String,
    contract: String,
    #[serde(default)]
    settings: String,
    events: String,
    #[serde(default)]
    left_out: u64,
    rows: usize,
    #[serde(default)]
    expect: Vec<BTreeMap<String, String>>,
}

impl Case {
    /// Parses a case.
    ///
    /// # Errors
    /// The problem and its location in the text.
    pub fn parse(name: String, text: &str, catalogue: &str) -> Result<Self, String> {
        let file: CaseFile = toml::from_str(text).map_err(|error| error.to_string())?;
        if file.why.trim().is_empty() || file.contract.trim().is_empty() {
            return Err("expected texts in `why` and `contract`, which describe the case".into());
        }
        let settings = with_catalogue(&file.settings, catalogue)?;
        if let Some(row) = file.expect.iter().find(|columns| !columns.contains_key("event_id")) {
            return Err(format!("[[expect]] without event_id: {row:?}"));
        }
        if file.expect.len() > file.rows {
            let (expected, rows) = (file.expect.len(), file.rows);
            return Err(format!("{expected} tables [[expect]], but rows = {rows}"));
        }
        let lines = file.events.lines().filter(|line| !line.trim().is_empty());
        Ok(Self {
            name,
            settings,
            events: lines.map(str::to_owned).collect(),
            left_out: file.left_out,
            rows: file.rows,
            expect: file.expect.into_iter().map(|columns| Expected { columns }).collect(),
        })
    }
}

/// Adds the catalogue to settings without apps.
fn with_catalogue(settings: &str, catalogue: &str) -> Result<String, String> {
    let table: toml::Table =
        toml::from_str(settings).map_err(|error| format!("settings: {error}"))?;
    if table.contains_key("apps") {
        Ok(settings.to_owned())
    } else {
        Ok(format!("{settings}\n{catalogue}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOGUE: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n";

    fn parse(text: &str) -> Result<Case, String> {
        Case::parse("x".into(), text, CATALOGUE)
    }

    #[track_caller]
    fn check_wrong(text: &str, part: &str) {
        let problem = parse(text).unwrap_err();
        assert!(problem.contains(part), "{part} is not in {problem}");
    }

    const GOOD: &str = "why = 'w'\ncontract = '3'\nevents = '''\n{}\n\n[]\n'''\n";

    #[test]
    fn the_catalogue_replaces_missing_apps() {
        let case = parse(&format!("{GOOD}rows = 0\nsettings = '[fraud]'")).unwrap();
        assert_eq!(case.settings, format!("[fraud]\n{CATALOGUE}"));
        assert_eq!(case.events, ["{}", "[]"]);
        let with_apps = parse(&format!("{GOOD}rows = 0\nsettings = '[[apps]]'")).unwrap();
        assert_eq!(with_apps.settings, "[[apps]]");
    }

    #[test]
    fn errors_name_the_key() {
        check_wrong(GOOD, "rows");
        check_wrong("contract = '3'\nevents = ''\nrows = 0", "why");
        check_wrong("why = ' '\ncontract = '3'\nevents = ''\nrows = 0", "why");
        check_wrong(&format!("{GOOD}rows = 0\nrow = 1"), "row");
        check_wrong(&format!("{GOOD}rows = 0\nsettings = '[fraud'"), "settings");
        check_wrong(&format!("{GOOD}rows = 1\n[[expect]]\nstatus = 'organic'"), "event_id");
        check_wrong(&format!("{GOOD}rows = 0\n[[expect]]\nevent_id = 'a'"), "rows = 0");
        check_wrong(
            &format!("{GOOD}rows = 1\n[[expect]]\nevent_id = 'a'\nspreadid = 7"),
            "spreadid",
        );
    }
}
