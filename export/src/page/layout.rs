//! What is around every page.

use attribution::rules::policy::AppPolicy;
use axum::http::HeaderMap;
use serde::Serialize;

use super::assets::{ASSETS, Assets};
use crate::http::access::{Caller, session};
use crate::http::state::ExportState;

#[derive(Debug, Serialize)]
pub(super) struct Shell {
    pub title: String,
    /// Links to the other pages, where there is somebody to see them.
    links: Vec<Link>,
    /// The id of the token, where one was given in a cookie.
    signed_in: Option<String>,
    assets: &'static Assets,
}

#[derive(Debug, Serialize)]
struct Link {
    name: &'static str,
    target: String,
    is_current: bool,
}

const LINKS: [(&str, &str); 4] = [
    ("Export", "/"),
    ("History", "/exports"),
    ("Activation", "/activations"),
    ("Device", "/devices"),
];

/// An app to choose.
#[derive(Debug, Serialize)]
pub(super) struct AppChoice {
    pub key: String,
    pub name: String,
    pub is_chosen: bool,
}

impl Shell {
    /// Of the page at this path; app and zone are taken along to the others.
    pub fn new(
        title: &str,
        path: &str,
        (app, timezone): (&str, &str),
        (caller, headers): (&Caller, &HeaderMap),
    ) -> Self {
        let same = [("app", app), ("timezone", timezone)];
        let same: Vec<_> = same.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let query = serde_urlencoded::to_string(same).unwrap_or_default();
        let link = |(name, at): (&'static str, &str)| {
            let target = if query.is_empty() { at.to_owned() } else { format!("{at}?{query}") };
            Link { name, target, is_current: at == path }
        };
        let is_session = session::token(headers).is_some();
        Self {
            title: title.into(),
            links: LINKS.into_iter().map(link).collect(),
            signed_in: caller.token_id().filter(|_| is_session).map(Into::into),
            assets: &ASSETS,
        }
    }

    /// Of a page that knows of nobody.
    pub fn bare(title: &str) -> Self {
        Self { title: title.into(), links: vec![], signed_in: None, assets: &ASSETS }
    }

    /// Of a problem: with the links, if that who asks may follow them.
    pub fn of_nobody(state: &ExportState, headers: &HeaderMap, title: &str) -> Self {
        let caller = state.access.known(headers);
        caller.map_or_else(
            || Self::bare(title),
            |caller| Self::new(title, "", ("", ""), (&caller, headers)),
        )
    }
}

/// The app that is chosen, or else the first, and all for a list of them.
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
