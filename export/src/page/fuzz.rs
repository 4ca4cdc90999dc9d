//! The URL of the start page, for `crate::fuzz`.

use attribution::facts::event::EventTime;
use attribution::rules::policy::AppPolicy;

use super::export_form::name_list::names;
use super::export_form::state::Choice;
use crate::query::parameter::{decoded, quoted};

/// Checks that the URL of a choice parses to the same choice, and that a list as people type it has the same names
/// when it is written canonically.
pub(crate) fn page(input: &[u8]) {
    if let Ok(list) = std::str::from_utf8(input) {
        let names = names(list);
        assert_eq!(self::names(&quoted(&names)), names, "{list:?}");
    }
    let Ok(params) = decoded(input) else { return };
    let choice = Choice::new(&params);
    let address = choice.address();
    let query = address.strip_prefix("/?").unwrap_or_default();
    let again = decoded(query.as_bytes()).map(|params| Choice::new(&params));
    let again = again.map(|again| again.address());
    assert_eq!(again.as_ref(), Ok(&address));
    let Some(config) = &*crate::fuzz::CONFIG else { return };
    let apps: Vec<&AppPolicy> = config.policy.apps().collect();
    let now = EventTime::default().plus(1_773_100_800_000);
    if let Err(wrong) = choice.export_request(&apps, &config.policy, now) {
        assert!(!wrong.is_empty());
    }
    for path in ["x.csv", "x.ndjson"] {
        let request = format!("{path}?{}", String::from_utf8_lossy(input));
        let Some(choice) = Choice::of_request("app,x", &request) else { continue };
        assert_eq!(choice.app, "app,x");
    }
}
