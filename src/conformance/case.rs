//! One case, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Facts and settings in, rows out.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Its folder and file, as `3-candidates/window-click-edge`.
    pub name: String,
    /// The whole settings, the suite's catalogue included.
    pub settings: String,
    /// One event each, without empty lines.
    pub events: Vec<String>,
    /// How many of the events are no events: they are left out.
    pub left_out: u64,
    /// How many rows there are in all.
    pub rows: usize,
    pub expect: Vec<Expected>,
}

/// A row that must be there. Which one: the row with this `event_id` and, where they are given,
/// this `app` and `event_type`.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// The exact text of columns by name, those that say which row it is included.
    pub columns: BTreeMap<String, String>,
}

/// The columns that say which row is meant.
pub(super) const NAMING: [&str; 3] = ["event_id", "app", "event_type"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
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
    /// # Errors
    /// What is wrong with the text, and where.
    pub fn parse(name: String, text: &str, catalogue: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        if written.why.trim().is_empty() || written.contract.trim().is_empty() {
            return Err("`why` and `contract` say what the case is for: expected texts".into());
        }
        let settings = with_catalogue(&written.settings, catalogue)?;
        if let Some(nameless) = written.expect.iter().find(|row| !row.contains_key("event_id")) {
            return Err(format!("[[expect]] without event_id: {nameless:?}"));
        }
        if written.expect.len() > written.rows {
            let (expected, rows) = (written.expect.len(), written.rows);
            return Err(format!("{expected} times [[expect]], but rows = {rows}"));
        }
        let lines = written.events.lines().filter(|line| !line.trim().is_empty());
        Ok(Self {
            name,
            settings,
            events: lines.map(str::to_owned).collect(),
            left_out: written.left_out,
            rows: written.rows,
            expect: written.expect.into_iter().map(|columns| Expected { columns }).collect(),
        })
    }
}

/// The settings of a case, with apps.
fn with_catalogue(settings: &str, catalogue: &str) -> Result<String, String> {
    let table: toml::Table =
        toml::from_str(settings).map_err(|error| format!("in its settings: {error}"))?;
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
    fn the_catalogue_stands_in_for_absent_apps() {
        let case = parse(&format!("{GOOD}rows = 0\nsettings = '[fraud]'")).unwrap();
        assert_eq!(case.settings, format!("[fraud]\n{CATALOGUE}"));
        assert_eq!(case.events, ["{}", "[]"]);
        let own = parse(&format!("{GOOD}rows = 0\nsettings = '[[apps]]'")).unwrap();
        assert_eq!(own.settings, "[[apps]]");
    }

    #[test]
    fn what_is_wrong_is_named() {
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
