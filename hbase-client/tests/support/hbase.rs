//! A real Apache HBase: master, three region servers and ZooKeeper in one JVM, from jars that Maven resolves.

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
use super::{DEADLINE, eventually, free_port, maven};

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
    /// Returns the instance that all tests share. Each test uses its own tables.
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

    /// Starts an instance to share. It has many small regions, so MSLAB, which allocates 2 MB for each, is off.
    pub fn start_to_share() -> Self {
        Self::start(|site, _| site.set("hbase.hregion.memstore.mslab.enabled", false))
    }

    /// Returns the data with which other processes connect to this instance.
    pub fn service(&self) -> Service {
        let service = Service::default().with("dir", self.dir.display());
        let service = service.with("master_port", self.master_port);
        service.with("zookeeper_port", self.zookeeper_port)
    }

    /// Starts a separate instance. `settings` changes the usual settings, and gets the instance's folder.
    pub fn start(settings: impl Fn(Site, &Path) -> Site) -> Self {
        // Retried once, because another process may have taken a free port before its use.
        Self::try_start(&settings)
            .or_else(|_| Self::try_start(&settings))
            .unwrap_or_else(|log| panic!("HBase does not start:\n{log}"))
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
        let dir =
            TempDir::with_prefix("hbase-client-").expect("the temporary folder is created").keep();
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

    /// Returns the addresses for a client's configuration.
    pub fn servers(&self) -> Vec<String> {
        vec![format!("localhost:{}", self.master_port)]
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("this process started the instance").pid()
    }

    pub fn config(&self) -> Config {
        Config::new(self.servers()).expect("the addresses are valid")
    }

    /// Connects however slowly a busy machine makes HBase respond.
    pub async fn client(&self) -> Client {
        let mut config = self.config();
        config.connect_timeout = DEADLINE;
        Client::connect(config).await.expect("HBase responds")
    }

    /// Creates a table with one family, `d`, that is split at these rows.
    pub async fn table(&self, name: &str, splits: &[&str]) -> (Client, Table) {
        let client = self.client().await;
        create(&client, name, splits).await;
        let table = client.table(name).expect("the name is valid");
        (client, table)
    }
}

pub async fn create(client: &Client, name: &str, splits: &[&str]) {
    let splits: Vec<_> = splits.iter().map(|split| split.as_bytes().to_vec().into()).collect();
    let spec = TableSpec::new(name).family(Family::new("d"));
    client.admin().create(&spec, &splits).await.expect("the table is created");
}

/// Writes the configuration of a JVM to `conf` in its folder.
pub fn configure(dir: &Path, site: &Site) {
    let conf = dir.join("conf");
    fs::create_dir_all(&conf).expect("the folder is created");
    fs::write(conf.join("hbase-site.xml"), site.xml()).expect("the file is written");
    fs::write(conf.join("log4j.properties"), LOG).expect("the file is written");
    fs::write(conf.join("jvm.flags"), FLAGS).expect("the file is written");
}

/// Returns the command of a JVM with HBase on its class path. The caller adds the path of `conf/hbase-site.xml`.
pub fn java(dir: &Path, heap: &str, class_data: &str) -> Command {
    let mut command = jvm(dir, heap);
    // Jars only: class data sharing does not support folders on the class path.
    command.arg(class_data).arg("-cp").arg(jars().join("*"));
    command
}

/// Returns a command like [`java`], for a program that reads its settings from a folder on its class path.
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
        // For a fast start and little memory rather than throughput.
        .args([heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command
}

/// Returns the settings file that [`configure`] writes.
pub fn site_file(dir: &Path) -> String {
    dir.join("conf/hbase-site.xml").display().to_string()
}

/// Returns the class data archive that all servers share.
pub fn archive() -> Archive {
    Archive::new(jars(), "servers")
}

/// Returns the folder of HBase's jars.
pub fn jars() -> &'static Path {
    static JARS: OnceLock<PathBuf> = OnceLock::new();
    let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
    JARS.get_or_init(|| maven::resolve("hbase", POM, &goal))
}

/// Waits until the cluster has a master and all its region servers. Returns the log if a port is in use.
pub fn await_servers(servers: &[String], log: &Path) -> Result<(), String> {
    eventually("HBase starts", || async {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.contains("Address already in use") {
            return Ok(Err(text));
        }
        match check_started(servers).await {
            Ok(()) => Ok(Ok(())),
            Err(error) => Err(format!("{error}:\n{text}")),
        }
    })
}

/// Checks that `hbase:namespace` is open, which the master creates last.
async fn check_started(servers: &[String]) -> Result<(), Error> {
    let mut config = Config::new(servers)?;
    config.operation_timeout = Duration::from_secs(5);
    let client = Client::connect(config).await?;
    client.admin().list().await?;
    let regions = client.admin().regions("hbase:namespace").await?;
    match regions.iter().all(|region| region.server.is_some()) {
        true => Ok(()),
        false => Err(Error::Closed),
    }
}
