//! The HTTP listeners.

use anyhow::Context;
use config::{Config, ExportClients};
use export::ExportState;
use export::http::admin::Admin;
use ingest::Shutdown;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::SUPERVISION_INTERVAL;

/// The bound listeners. They are bound before anything else starts.
pub struct Listeners {
    /// `None` in a process that does not export.
    export: Option<TcpListener>,
    admin: TcpListener,
    clients: ExportClients,
}

impl Listeners {
    pub fn bind(runtime: &Runtime, config: &Config, exports: bool) -> anyhow::Result<Self> {
        let bind = |setting: &str, address| {
            runtime
                .block_on(TcpListener::bind(address))
                .with_context(|| format!("cannot listen on {setting} = \"{address}\""))
        };
        let export = exports.then(|| bind("export.listen", config.export_listen)).transpose()?;
        let admin = bind("admin.listen", config.admin_listen)?;
        Ok(Self { export, admin, clients: config.export_clients.clone() })
    }

    /// Serves until shutdown is requested. Without `state`, only the admin listener is served.
    pub async fn serve(self, state: Option<ExportState>, admin: Admin, shutdown: Shutdown) {
        let Self { export, admin: listener, clients } = self;
        let hosts = clients.allowed_hosts.clone();
        let stop = until_shutdown(shutdown.clone());
        let admin = export::http::admin::serve(listener, admin, &hosts, stop);
        let Some((listener, state)) = export.zip(state) else { return admin.await };
        let export = export::serve(listener, state, clients, until_shutdown(shutdown));
        tokio::join!(export, admin);
    }
}

async fn until_shutdown(shutdown: Shutdown) {
    while !shutdown.is_requested() {
        tokio::time::sleep(SUPERVISION_INTERVAL).await;
    }
}
