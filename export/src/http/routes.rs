//! The routes of the data listener under settings that can be replaced while it serves.

use std::net::IpAddr;
use std::sync::Arc;

use attribution::rules::policy::Policy;
use axum::Router;
use config::Token;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::hosts::{Hosts, address};
use super::router::router;
use super::state::ExportState;
use crate::TrackingLinks;
use crate::metrics::Metrics;

/// The routes, with the settings that they have at present; cheap to clone. Each request is answered by one version of
/// the settings.
#[derive(Clone)]
pub struct ExportRoutes(Arc<Shared>);

struct Shared {
    state: Mutex<ExportState>,
    routers: watch::Sender<Router>,
    listener: IpAddr,
    allowed_hosts: Box<[Box<str>]>,
}

impl ExportRoutes {
    /// `allowed_hosts` are names of this listener besides those of the machine.
    pub fn new(state: ExportState, listener: &TcpListener, allowed_hosts: &[Box<str>]) -> Self {
        let listener = address(listener);
        let hosts = hosts(&state, listener, allowed_hosts);
        let (routers, _) = watch::channel(router(state.clone(), hosts));
        let (state, allowed_hosts) = (Mutex::new(state), allowed_hosts.into());
        Self(Arc::new(Shared { state, routers, listener, allowed_hosts }))
    }

    /// Answers further requests by these settings. Downloads in progress end by those with which they began.
    pub fn replace(
        &self,
        policy: Arc<Policy>,
        tokens: &[Token],
        downloads_per_token_max: usize,
        links: Option<Arc<dyn TrackingLinks>>,
    ) {
        let Shared { state, routers, listener, allowed_hosts } = &*self.0;
        let mut state = state.lock();
        let access = Arc::new(state.access.with_tokens(tokens, downloads_per_token_max));
        *state = ExportState { policy, access, links, ..state.clone() };
        let hosts = hosts(&state, *listener, allowed_hosts);
        let _ = routers.send_replace(router(state.clone(), hosts));
    }

    pub(crate) fn routers(&self) -> watch::Receiver<Router> {
        self.0.routers.subscribe()
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.0.state.lock().metrics)
    }
}

/// Without tokens, only expected names are answered.
fn hosts(state: &ExportState, listener: IpAddr, allowed_hosts: &[Box<str>]) -> Hosts {
    if state.access.is_open() || !allowed_hosts.is_empty() {
        Hosts::only(listener, allowed_hosts)
    } else {
        Hosts::any()
    }
}
