//! The apps and their campaigns, from the settings.

use attribution::rules::policy::Campaign;
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Serialize;

use crate::http::access::Caller;
use crate::http::extract::{Segments, no_parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;

/// An entry of the list of apps.
#[derive(Serialize)]
struct AppEntry<'a> {
    key: &'a str,
    pid: u32,
    name: &'a str,
}

/// An entry of the list of campaigns.
#[derive(Serialize)]
struct CampaignEntry<'a> {
    spreadid: u32,
    name: &'a str,
    channel: &'a str,
}

/// Lists the apps that the caller may read, by pid.
pub(crate) async fn apps(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    no_parameters(&uri)?;
    let apps = caller.apps(&state.policy).into_iter();
    let entries = apps.map(|app| AppEntry { key: &app.key, pid: app.pid.0, name: &app.name });
    let entries: Vec<_> = entries.collect();
    Ok(respond::json(&entries))
}

/// Lists the campaigns of an app, by their number.
pub(crate) async fn campaigns(
    State(state): State<ExportState>,
    Segments(key): Segments<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let app = respond::app(&state, key)?;
    no_parameters(&uri)?;
    let of_app = state.policy.campaigns().filter(|campaign| campaign.pid == app.pid);
    let mut campaigns: Vec<&Campaign> = of_app.collect();
    campaigns.sort_by_key(|campaign| campaign.spreadid);
    let entries: Vec<CampaignEntry<'_>> = campaigns
        .iter()
        .map(|campaign| CampaignEntry {
            spreadid: campaign.spreadid.0,
            name: &campaign.name,
            channel: &campaign.channel,
        })
        .collect();
    Ok(respond::json(&entries))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::fixture::Bed;

    #[test]
    fn campaigns_are_those_of_the_settings() {
        let bed = Bed::new(vec![]);
        let apps = bed.get("/v1/apps");
        assert_eq!(apps.header("cache-control"), Some("no-store"));
        for target in ["/v1/apps", "/v1/exports/0", "/openapi.json", "/", "/assets/x", "/x"] {
            let answer = bed.get(target);
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
        }
        let expected = json!([{"spreadid": 7, "name": "Say \"hi\"", "channel": "tou,tiao"}]);
        assert_eq!(bed.get("/v1/apps/app-x/campaigns").json(), expected);
        assert_eq!(bed.get("/v1/apps/app%20y/campaigns").json(), json!([]));
    }
}
