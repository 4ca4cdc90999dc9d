//! A real Apache HBase of six processes, each of which can be killed: HDFS, ZooKeeper, a master, and three region
//! servers.
//!
//! It stores its files in HDFS, because a server that was declared dead and continues must not write: HDFS revokes the
//! lease of its log. With local files it would acknowledge rows that are never read again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hbase_client::{Client, Config};
use tempfile::TempDir;

use super::child_guard::ChildGuard;
use super::hbase::{archive, await_servers, configure, java, java_with_conf, site_file};
use super::shared::note_start;
use super::site::Site;
use super::{eventually, free_port, run_ok};

const PACKAGE: &str = "org.apache.hadoop.hbase";
const REGION_SERVERS: usize = 3;

#[derive(Debug)]
pub struct Processes {
    dir: PathBuf,
    master_port: u16,
    ports: Vec<u16>,
    master: Option<ChildGuard>,
    servers: Vec<Option<ChildGuard>>,
    _files: ChildGuard,
    /// Fields are dropped in order: this process ends last, and removes the folder.
    _zookeeper: ChildGuard,
}

impl Processes {
    pub fn start() -> Self {
        let dir =
            TempDir::with_prefix("hbase-client-").expect("the temporary folder is created").keep();
        let (master_port, zookeeper_port, files_port) = (free_port(), free_port(), free_port());
        let data = dir.join("data");
        let site = Site::of_test()
            .set("hbase.cluster.distributed", true)
            .set("hbase.rootdir", format!("hdfs://127.0.0.1:{files_port}/hbase"))
            .set("dfs.replication", 1)
            .set("hbase.tmp.dir", format!("{}/tmp", data.display()))
            .set("hbase.zookeeper.quorum", "127.0.0.1")
            .set("hbase.zookeeper.property.clientPort", zookeeper_port)
            .set("hbase.zookeeper.property.clientPortAddress", "127.0.0.1")
            .set("hbase.zookeeper.property.dataDir", data.join("zookeeper").display())
            .set("hbase.zookeeper.property.tickTime", 500)
            .set("hbase.zookeeper.property.admin.enableServer", false)
            // Longer than a busy machine delays a process.
            .set("zookeeper.session.timeout", 6_000)
            .set("hbase.master.port", master_port);
        configure(&dir, &site);
        let started = Instant::now();
        let mut zookeeper = java_with_conf(&dir, "-Xmx128m");
        zookeeper.arg(format!("{PACKAGE}.zookeeper.HQuorumPeer"));
        let zookeeper = ChildGuard::spawn(&dir, &zookeeper);
        let files = start_files(&dir, files_port);
        let ports = (0..REGION_SERVERS).map(|_| free_port()).collect();
        let mut processes = Self {
            dir,
            master_port,
            ports,
            master: None,
            servers: (0..REGION_SERVERS).map(|_| None).collect(),
            _files: files,
            _zookeeper: zookeeper,
        };
        processes.start_master();
        (0..REGION_SERVERS).for_each(|server| processes.start_server(server));
        let log = processes.dir.join("master/log");
        await_servers(&processes.addresses(), &log)
            .unwrap_or_else(|log| panic!("HBase does not start:\n{log}"));
        note_start("hbase of six processes", started);
        processes
    }

    pub fn start_master(&mut self) {
        let mut command = java(&self.dir, "-Xmx384m", &archive().read_only_option());
        command.arg(format!("{PACKAGE}.master.HMaster"));
        command.args(["-conf", &site_file(&self.dir), "start"]);
        self.master = Some(ChildGuard::spawn(&self.part("master"), &command));
    }

    pub fn start_server(&mut self, server: usize) {
        let mut command = java(&self.dir, "-Xmx384m", &archive().read_only_option());
        command.arg(format!("{PACKAGE}.regionserver.HRegionServer"));
        command.args(["-conf", &site_file(&self.dir)]);
        command.args(["-D", &format!("hbase.regionserver.port={}", self.ports[server]), "start"]);
        let name = format!("server-{server}");
        self.servers[server] = Some(ChildGuard::spawn(&self.part(&name), &command));
    }

    /// Kills a server, like an out-of-memory kill or a power failure.
    pub fn kill_server(&mut self, server: usize) {
        self.servers[server].take().expect("the server runs").end("KILL");
    }

    /// Suspends a server, whose connections stay open.
    pub fn stop_server(&self, server: usize) {
        self.signal(server, "STOP");
    }

    pub fn continue_server(&self, server: usize) {
        self.signal(server, "CONT");
    }

    /// Restarts a server that has ended by itself, and kills it first if it has not.
    pub fn start_server_again(&mut self, server: usize) {
        if let Some(child) = self.servers[server].take() {
            child.end("KILL");
        }
        self.start_server(server);
    }

    fn signal(&self, server: usize, name: &str) {
        let pid = self.servers[server].as_ref().expect("the server runs").pid().to_string();
        run_ok(Command::new("kill").args([&format!("-{name}"), &pid]), b"");
    }

    pub fn kill_master(&mut self) {
        self.master.take().expect("the master runs").end("KILL");
    }

    /// Returns the index of the region server with this port.
    pub fn server_of(&self, port: u16) -> usize {
        self.ports
            .iter()
            .position(|known| *known == port)
            .expect("the port belongs to this cluster")
    }

    /// Returns the ports of the region servers.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the addresses of the master and the region servers.
    pub fn addresses(&self) -> Vec<String> {
        let ports = std::iter::once(&self.master_port).chain(&self.ports);
        ports.map(|port| format!("localhost:{port}")).collect()
    }

    /// Connects with a timeout that is long enough for a busy machine to declare a server dead and reopen its regions.
    pub async fn client(&self) -> Client {
        let mut config = Config::new(self.addresses()).expect("the addresses are valid");
        config.operation_timeout = Duration::from_secs(180);
        Client::connect(config).await.expect("HBase responds")
    }

    fn part(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).expect("the folder is created");
        dir
    }
}

/// Starts an HDFS of one node.
fn start_files(dir: &Path, port: u16) -> ChildGuard {
    let part = dir.join("files");
    fs::create_dir_all(&part).expect("the folder is created");
    let started = part.join("started");
    let mut files = java(dir, "-Xmx256m", &archive().read_only_option());
    files.arg(format!("-Dtest.build.data={}", part.join("data").display()));
    files.args(["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]);
    files.args(["-nnport", &port.to_string(), "-writeDetails"]).arg(&started);
    let files = ChildGuard::spawn(&part, &files);
    eventually("HDFS starts", || async {
        // The file is written once HDFS has started.
        if started.exists() {
            return Ok(());
        }
        Err(fs::read_to_string(part.join("log")).unwrap_or_default())
    });
    files
}
