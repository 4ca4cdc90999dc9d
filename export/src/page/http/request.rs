//! The request of a page.

use attribution::rules::policy::AppPolicy;
use axum::extract::{Extension, FromRequestParts};
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::respond::value;
use crate::http::access::Caller;
use crate::http::extract::parameters;
use crate::http::problem::Problem;
use crate::http::state::ExportState;
use crate::page::export_form::options::APP;
use crate::page::layout::Shell;
use crate::query::parameter::TIMEZONE;

pub(crate) struct PageRequest {
    pub state: ExportState,
    pub caller: Caller,
    pub headers: HeaderMap,
    /// The parameters of the URL.
    pub params: Vec<(String, String)>,
}

impl FromRequestParts<ExportState> for PageRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ExportState) -> Result<Self, Problem> {
        let params = parameters(&parts.uri)?;
        // The gate has inserted it.
        let caller = Extension::from_request_parts(parts, state).await;
        let Extension(caller) = caller.map_err(|_| Problem::page())?;
        Ok(Self { state: state.clone(), caller, headers: parts.headers.clone(), params })
    }
}

impl PageRequest {
    pub(crate) fn value(&self, name: &str) -> &str {
        value(&self.params, name)
    }

    /// Returns the apps that the caller may read.
    pub(crate) fn apps(&self) -> Vec<&AppPolicy> {
        self.caller.apps(&self.state.policy)
    }

    /// Returns the frame of the page at this path.
    pub(crate) fn shell(&self, title: &str, path: &str) -> Shell {
        let (app, timezone) = (self.value(APP), self.value(TIMEZONE));
        Shell::new(title, path, app, timezone, &self.caller, &self.headers)
    }
}
