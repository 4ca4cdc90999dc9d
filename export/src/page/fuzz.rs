//! The first page's address, for `crate::fuzz`.

use attribution::facts::event::EventTime;
use attribution::rules::policy::AppPolicy;

use super::export_form::name_list::names;
use super::export_form::state::Choice;
use crate::query::parameter::{decoded, quoted};

/// What is chosen stands in the page's address, and is chosen again by it. Also a list as people
/// write it: as it is written for them it is the same.
pub(crate) fn page(input: &[u8]) {
    if let Ok(list) = std::str::from_utf8(input) {
        let names = names(list);
        assert_eq!(self::names(&quoted(&names)), names, "{list:?}");
    }
    let Ok(given) = decoded(input) else { return };
    let choice = Choice::new(&given);
    let address = choice.address();
    let query = address.strip_prefix("/?").unwrap_or_default();
    let again = decoded(query.as_bytes()).map(|given| Choice::new(&given));
    let again = again.map(|again| again.address());
    assert_eq!(again.as_ref(), Ok(&address));
    let Some(config) = &*crate::fuzz::CONFIG else { return };
    let apps: Vec<&AppPolicy> = config.policy.apps().collect();
    let now = EventTime::default().plus(1_773_100_800_000);
    if let Err(wrong) = choice.wish(&apps, &config.policy, now) {
        assert!(!wrong.is_empty());
    }
    for path in ["x.csv", "x.ndjson"] {
        let request = format!("{path}?{}", String::from_utf8_lossy(input));
        let Some(choice) = Choice::of_request("app,x", &request) else { continue };
        assert_eq!(choice.app, "app,x");
    }
}
