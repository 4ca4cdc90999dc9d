//! The frame of every page.

use attribution::rules::policy::AppPolicy;
use axum::http::HeaderMap;
use serde::Serialize;

use super::assets::{ASSETS, Assets};
use crate::http::access::{Caller, session};
use crate::http::state::ExportState;

#[derive(Debug, Serialize)]
pub(crate) struct Shell {
    pub title: String,
    /// Links to the other pages, if there is an authenticated caller.
    links: Vec<Link>,
    /// The id of the token, if the browser has signed in with it.
    signed_in: Option<String>,
    assets: &'static Assets,
}

#[derive(Debug, Serialize)]
struct Link {
    name: &'static str,
    target: String,
    is_current: bool,
}

const LINKS: [(&str, &str); 6] = [
    ("Export", "/"),
    ("History", "/exports"),
    ("Activation", "/activations"),
    ("Device", "/devices"),
    ("Links", "/links"),
    ("Callbacks", "/callbacks"),
];

/// An option of the list of apps.
#[derive(Debug, Serialize)]
pub(super) struct AppChoice {
    pub key: String,
    pub name: String,
    pub is_chosen: bool,
}

impl Shell {
    /// Returns the frame of the page at this path. Links to other pages keep app and time zone.
    pub fn new(
        title: &str,
        path: &str,
        app: &str,
        timezone: &str,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Self {
        let shared = [("app", app), ("timezone", timezone)];
        let shared: Vec<_> = shared.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let query = serde_urlencoded::to_string(shared).unwrap_or_default();
        let link = |(name, at): (&'static str, &str)| {
            let target = if query.is_empty() { at.to_owned() } else { format!("{at}?{query}") };
            Link { name, target, is_current: at == path }
        };
        let is_session = session::has_cookie(headers);
        Self {
            title: title.into(),
            links: LINKS.into_iter().map(link).collect(),
            signed_in: caller.token_id().filter(|_| is_session).map(Into::into),
            assets: &ASSETS,
        }
    }

    /// Returns the frame of a page without a caller.
    pub fn bare(title: &str) -> Self {
        Self { title: title.into(), links: vec![], signed_in: None, assets: &ASSETS }
    }

    /// Returns the frame of a problem; it has links if the caller is authenticated.
    pub fn for_problem(state: &ExportState, headers: &HeaderMap, title: &str) -> Self {
        let caller = state.access.known(headers);
        caller.map_or_else(
            || Self::bare(title),
            |caller| Self::new(title, "", "", "", &caller, headers),
        )
    }
}

/// Returns the chosen app (the first one if `key` is empty), and the options of the list of apps.
pub(super) fn choose<'p>(
    apps: &[&'p AppPolicy],
    key: &str,
) -> (Option<&'p AppPolicy>, Vec<AppChoice>) {
    let chosen = match key {
        "" => apps.first().copied(),
        _ => apps.iter().copied().find(|app| &*app.key == key),
    };
    let choice = |app: &&AppPolicy| AppChoice {
        key: app.key.to_string(),
        name: app.name.to_string(),
        is_chosen: chosen.is_some_and(|chosen| chosen.pid == app.pid),
    };
    (chosen, apps.iter().map(choice).collect())
}
