//! The HTTP listeners.

use std::os::fd::AsFd;

use anyhow::Context;
use collect::CollectRoutes;
use config::{Config, ExportClients};
use export::http::admin::Admin;
use export::{ExportRoutes, ExportState};
use ingest::Shutdown;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::until_shutdown::until_shutdown;

/// The listeners of a process, besides the admin listener.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub exports: bool,
    /// Only if `collect.listen` is set.
    pub collects: bool,
}

/// The bound listeners. They are bound before anything else starts.
pub struct Listeners {
    /// `None` in a process that does not export.
    export: Option<TcpListener>,
    /// `None` in a process that does not collect.
    collect: Option<TcpListener>,
    admin: TcpListener,
    clients: ExportClients,
}

impl Listeners {
    pub fn bind(runtime: &Runtime, config: &Config, served: Served) -> anyhow::Result<Self> {
        let bind = |setting: &str, address| {
            runtime
                .block_on(TcpListener::bind(address))
                .with_context(|| format!("cannot listen on {setting} = \"{address}\""))
        };
        let Served { exports, collects } = served;
        let export = exports.then(|| bind("export.listen", config.export_listen)).transpose()?;
        let collect = config.collect.as_ref().filter(|_| collects);
        let collect = collect.map(|collect| bind("collect.listen", collect.listen)).transpose()?;
        let admin = bind("admin.listen", config.admin_listen)?;
        Ok(Self { export, collect, admin, clients: config.export_clients.clone() })
    }

    /// Serves the admin listener until `stop`, before [`Listeners::serve`] does with other contents.
    pub fn serve_admin_until(
        &self,
        stop: &Shutdown,
        admin: Admin,
        runtime: &Runtime,
    ) -> anyhow::Result<()> {
        let socket = self.admin.as_fd().try_clone_to_owned();
        let _context = runtime.enter();
        let listener = socket.and_then(|socket| TcpListener::from_std(socket.into()));
        let listener = listener.context("the admin listener cannot be shared")?;
        let (hosts, stop) = (self.clients.allowed_hosts.clone(), until_shutdown(stop.clone()));
        runtime.spawn(async move {
            export::http::admin::serve(listener, admin, &hosts, stop).await;
        });
        Ok(())
    }

    /// Returns the routes of the data listener; `None` in a process that does not export.
    pub fn export_routes(&self, state: ExportState) -> Option<ExportRoutes> {
        let listener = self.export.as_ref()?;
        Some(ExportRoutes::new(state, listener, &self.clients.allowed_hosts))
    }

    /// Serves until shutdown is requested. Without `export` or `collect`, their listeners are not served.
    ///
    /// # Errors
    /// If the collector fails for good.
    pub async fn serve(
        self,
        export: Option<ExportRoutes>,
        collect: Option<CollectRoutes>,
        admin: Admin,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let (routes, collector) = (export, collect);
        let Self { export, collect, admin: listener, clients } = self;
        let ExportClients { allowed_hosts: hosts, connections_per_client_max } = clients;
        let stop = || until_shutdown(shutdown.clone());
        let admin = export::http::admin::serve(listener, admin, &hosts, stop());
        let export = async {
            if let Some((listener, routes)) = export.zip(routes) {
                export::serve_routes(listener, routes, connections_per_client_max, stop()).await;
            }
        };
        let collect = async {
            let Some((listener, collector)) = collect.zip(collector) else { return Ok(()) };
            let outcome = collect::serve(listener, collector, stop()).await;
            if outcome.is_err() {
                // The other listeners stop too.
                shutdown.request();
            }
            outcome
        };
        let ((), collected, ()) = tokio::join!(export, collect, admin);
        Ok(collected?)
    }
}
