//! A real Apache HBase: master, three region servers and ZooKeeper in one JVM, from jars that Maven
//! resolves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use hbase_client::{Client, Config, Error, Family, Table, TableSpec};
use tempfile::TempDir;

use super::leash::Leash;
use super::site::Site;
use super::{eventually, free_port, maven};

const POM: &str = include_str!("hbase/pom.xml");
const FLAGS: &str = include_str!("hbase/jvm.flags");
const LOG: &str = include_str!("hbase/log4j.properties");

const REGION_SERVERS: usize = 3;

#[derive(Debug)]
pub struct HBase {
    dir: PathBuf,
    master_port: u16,
    pub zookeeper_port: u16,
    running: Option<Leash>,
}

impl HBase {
    /// The one that all tests of a binary share; tables are each test's own. There are many regions with little
    /// in each: none takes 2 MB of memory at once.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<HBase> = OnceLock::new();
        let site = |site: Site, _: &Path| site.set("hbase.hregion.memstore.mslab.enabled", false);
        SHARED.get_or_init(|| Self::start(site))
    }

    /// One of one's own, told what the function makes of the usual settings and its folder.
    pub fn start(settings: impl Fn(Site, &Path) -> Site) -> Self {
        // Between the look for a free port and its use someone else may take it: once more then.
        Self::try_start(&settings)
            .or_else(|_| Self::try_start(&settings))
            .unwrap_or_else(|log| panic!("hbase does not start:\n{log}"))
    }

    fn try_start(settings: &impl Fn(Site, &Path) -> Site) -> Result<Self, String> {
        let dir = TempDir::with_prefix("hbase-client-").expect("a temporary folder").keep();
        let (master_port, zookeeper_port) = (free_port(), free_port());
        let data = dir.join("data");
        let site = Site::of_test()
            .set("hbase.cluster.distributed", false)
            .set("hbase.rootdir", format!("file://{}/root", data.display()))
            .set("hbase.tmp.dir", format!("{}/tmp", data.display()))
            .set("hbase.zookeeper.property.clientPort", zookeeper_port)
            .set("hbase.master.port", master_port)
            .set("hbase.regionserver.port", 0);
        configure(&dir, &settings(site, &dir));
        let mut java = java(&dir, "-Xmx1536m");
        java.args(["org.apache.hadoop.hbase.master.HMaster", "start"]);
        java.arg(format!("--localRegionServers={REGION_SERVERS}"));
        let running = Some(Leash::hold(&dir, &java));
        let hbase = Self { dir, master_port, zookeeper_port, running };
        await_servers(&hbase.servers(), &hbase.dir.join("log"))?;
        Ok(hbase)
    }

    /// As a client's configuration wants them.
    pub fn servers(&self) -> Vec<String> {
        vec![format!("localhost:{}", self.master_port)]
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").pid()
    }

    pub fn config(&self) -> Config {
        Config::new(self.servers()).expect("addresses")
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.config()).await.expect("hbase answers")
    }

    /// A table of that name with one family, `d`, whose regions begin at these rows.
    pub async fn table(&self, name: &str, splits: &[&str]) -> (Client, Table) {
        let client = self.client().await;
        create(&client, name, splits).await;
        let table = client.table(name).expect("a name");
        (client, table)
    }
}

pub async fn create(client: &Client, name: &str, splits: &[&str]) {
    let splits: Vec<_> = splits.iter().map(|split| split.as_bytes().to_vec().into()).collect();
    let spec = TableSpec::new(name).family(Family::new("d"));
    client.admin().create(&spec, &splits).await.expect("the table is made");
}

impl Drop for HBase {
    fn drop(&mut self) {
        drop(self.running.take());
    }
}

/// Writes what a JVM reads from its folder's `conf`.
pub fn configure(dir: &Path, site: &Site) {
    let conf = dir.join("conf");
    fs::create_dir_all(&conf).expect("a folder");
    fs::write(conf.join("hbase-site.xml"), site.xml()).expect("a file");
    fs::write(conf.join("log4j.properties"), LOG).expect("a file");
    fs::write(conf.join("jvm.flags"), FLAGS).expect("a file");
}

/// A JVM with HBase on its path, configured by the folder's `conf`.
pub fn java(dir: &Path, heap: &str) -> Command {
    let conf = dir.join("conf");
    let mut command = Command::new("java");
    command
        .arg(format!("@{}", conf.join("jvm.flags").display()))
        // Made to start fast and to stay small, not to run long.
        .args([heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
        .arg(format!("{}:{}/*", conf.display(), jars().display()));
    command
}

/// The folder of HBase's jars.
pub fn jars() -> &'static Path {
    static JARS: OnceLock<PathBuf> = OnceLock::new();
    let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
    JARS.get_or_init(|| maven::resolve("hbase", POM, &goal))
}

/// Until the cluster has a master and all of its region servers; else its log.
pub fn await_servers(servers: &[String], log: &Path) -> Result<(), String> {
    eventually("hbase serves", || async {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.contains("Address already in use") {
            return Ok(Err(text));
        }
        match is_served(servers).await {
            Ok(()) => Ok(Ok(())),
            Err(error) => Err(format!("{error}:\n{text}")),
        }
    })
}

/// The master has made the namespaces last of all.
async fn is_served(servers: &[String]) -> Result<(), Error> {
    let mut config = Config::new(servers)?;
    config.operation_timeout = Duration::from_secs(5);
    let client = Client::connect(config).await?;
    let names = client.admin().list().await?;
    drop(names);
    let regions = client.admin().regions("hbase:namespace").await?;
    match regions.iter().all(|region| region.server.is_some()) {
        true => Ok(()),
        false => Err(Error::Closed),
    }
}
