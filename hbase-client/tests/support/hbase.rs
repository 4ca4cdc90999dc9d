//! A real Apache HBase: master, three region servers and ZooKeeper in one JVM, from jars that Maven
//! resolves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hbase_client::{Client, Config, Error, Family, Table, TableSpec};
use tempfile::TempDir;

use super::child_guard::ChildGuard;
use super::class_data::Archive;
use super::shared::{Service, note_start};
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
    running: Option<ChildGuard>,
}

impl HBase {
    /// The one that all tests share; tables are each test's own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<HBase> = OnceLock::new();
        SHARED.get_or_init(|| match Service::find("hbase") {
            Some(service) => Self {
                dir: service.text("dir").into(),
                master_port: service.port("master_port"),
                zookeeper_port: service.port("zookeeper_port"),
                running: None,
            },
            None => Self::start_to_share(),
        })
    }

    /// There are many regions with little in each: none takes 2 MB of memory at once.
    pub fn start_to_share() -> Self {
        Self::start(|site, _| site.set("hbase.hregion.memstore.mslab.enabled", false))
    }

    /// What others need to know to use this one.
    pub fn service(&self) -> Service {
        let service = Service::default().with("dir", self.dir.display());
        let service = service.with("master_port", self.master_port);
        service.with("zookeeper_port", self.zookeeper_port)
    }

    /// One of one's own, told what the function makes of the usual settings and its folder.
    pub fn start(settings: impl Fn(Site, &Path) -> Site) -> Self {
        // Between the look for a free port and its use someone else may take it: once more then.
        Self::try_start(&settings)
            .or_else(|_| Self::try_start(&settings))
            .unwrap_or_else(|log| panic!("hbase does not start:\n{log}"))
    }

    fn try_start(settings: &impl Fn(Site, &Path) -> Site) -> Result<Self, String> {
        let archive = archive();
        if !archive.exists() {
            // The dump can pause the JVM for longer than a ZooKeeper session lasts, so this cluster serves no test.
            let discarded = Self::launch(settings, &archive)?;
            archive.make(discarded.pid());
        }
        Self::launch(settings, &archive)
    }

    fn launch(settings: &impl Fn(Site, &Path) -> Site, archive: &Archive) -> Result<Self, String> {
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
        let mut java = java(&dir, "-Xmx2g", &archive.option());
        let master = "org.apache.hadoop.hbase.master.HMaster";
        java.args([master, "-conf", &site_file(&dir), "start"]);
        java.arg(format!("--localRegionServers={REGION_SERVERS}"));
        let started = Instant::now();
        let running = ChildGuard::spawn(&dir, &java);
        let hbase = Self { dir, master_port, zookeeper_port, running: Some(running) };
        await_servers(&hbase.servers(), &hbase.dir.join("log"))?;
        note_start("hbase", started);
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

/// A JVM with HBase on its path; the command's own arguments name `conf/hbase-site.xml`.
pub fn java(dir: &Path, heap: &str, class_data: &str) -> Command {
    let mut command = jvm(dir, heap);
    // Jars alone: a folder on the path rules class data out.
    command.arg(class_data).arg("-cp").arg(jars().join("*"));
    command
}

/// As [`java`], for a program that reads its settings from a folder on its path.
pub fn java_with_conf(dir: &Path, heap: &str) -> Command {
    let mut command = jvm(dir, heap);
    let path = format!("{}:{}/*", dir.join("conf").display(), jars().display());
    command.arg("-cp").arg(path);
    command
}

fn jvm(dir: &Path, heap: &str) -> Command {
    let conf = dir.join("conf");
    let mut command = Command::new("java");
    command
        .arg(format!("@{}", conf.join("jvm.flags").display()))
        .arg(format!("-Dlog4j.configuration=file:{}", conf.join("log4j.properties").display()))
        // Made to start fast and to stay small, not to run long.
        .args([heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command
}

/// The settings that [`configure`] has written, as HBase's programs take them.
pub fn site_file(dir: &Path) -> String {
    dir.join("conf/hbase-site.xml").display().to_string()
}

/// The class data of all servers.
pub fn archive() -> Archive {
    Archive::new(jars(), "servers")
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
