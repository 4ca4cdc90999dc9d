//! A collector without Kafka, so that all events go to its spool.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{CollectError, CollectRoutes, Collector};

pub(crate) struct Bed {
    pub collector: Collector,
    /// The lines of `--echo`.
    pub lines: Arc<Mutex<Vec<Value>>>,
    pub spool: PathBuf,
    _folder: TempDir,
}

impl Bed {
    /// Starts a collector with the apps `app-x` and `app-y` and the channels `c` and `d`. The campaign 7 is of `app-x`
    /// and `c`, and has the link `l`. `settings` are of `[collect]`; further tables may follow.
    pub fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("spool");
        let text = format!(
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n\
             [collect]\nlisten = \"127.0.0.1:1\"\nspool = {spool:?}\n{settings}\n\
             [[apps]]\npid = 1\nkey = \"app-x\"\n[[apps]]\npid = 2\nkey = \"app-y\"\n\
             [[channels]]\nid = \"c\"\n[[channels]]\nid = \"d\"\n\
             [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"c\"\n\
             [[links]]\nid = \"l\"\nspreadid = 7\nfallback = \"https://a.example/b\"\n"
        );
        let config = config::parse(&text).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&lines);
        let echo = move |line: &str| shown.lock().push(serde_json::from_str(line).unwrap());
        let settings = config.collect.as_ref().unwrap();
        let collector = Collector::start(&config, settings, Some(Arc::new(echo))).unwrap();
        Self { collector, lines, spool, _folder: folder }
    }
}

/// The listener of a collector, which serves until it is stopped or dropped.
pub(crate) struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), CollectError>>,
}

impl Server {
    pub async fn start(collector: &Collector) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // Nothing is sent; the channel is closed.
            let _ = stopped.await;
        };
        let routes = CollectRoutes::new(collector.clone());
        let served = tokio::spawn(crate::serve(listener, routes, shutdown));
        Self { address, stop, served }
    }

    /// Connects a client with this address, which is one of 127.0.0.0/8.
    pub async fn connect(&self, client: &str) -> TcpStream {
        let client: IpAddr = client.parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(client, 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Stops, and waits until all connections have ended.
    pub async fn stop(self) {
        drop(self.stop);
        self.served.await.unwrap().unwrap();
    }
}
