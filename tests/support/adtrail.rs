//! The real binary as a child process, on settings, a store and ports of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use tempfile::TempDir;

use super::http::{self, Reply};
use super::kafka::Kafka;
use super::{Captured, eventually, free_port, run, run_ok};

/// A place where adtrail runs: its settings, its store, and its topics in a Kafka.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
    brokers: String,
    pub topics: Topics,
    more_settings: String,
    /// Of every command.
    flags: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Topics {
    pub clicks: String,
    pub activations: String,
    pub effects: String,
}

impl Topics {
    /// Those of a test by this name.
    pub fn of(name: &str) -> Self {
        Self {
            clicks: format!("{name}.clicks"),
            activations: format!("{name}.activations"),
            effects: format!("{name}.effects"),
        }
    }

    pub fn all(&self) -> [&str; 3] {
        [&self.clicks, &self.activations, &self.effects]
    }
}

impl Site {
    /// `name` makes the topics this test's own; `more_settings` is TOML with the apps and what
    /// else differs from the defaults, but for `[kafka]`, `[store]`, `[export]` and `[admin]`.
    pub fn new(kafka: &Kafka, name: &str, partitions: i32, more_settings: &str) -> Self {
        let topics = Topics::of(name);
        for topic in topics.all() {
            kafka.create_topic(topic, partitions, &[]);
            // Where the dead letters of a topic go.
            kafka.create_topic(&format!("{topic}.dlq"), 1, &[]);
        }
        Self::on(topics, kafka.brokers(), more_settings)
    }

    /// Another place on the same topics: an empty store, which reads all from the start.
    pub fn beside(&self) -> Self {
        let site = Self::on(self.topics.clone(), self.brokers.clone(), &self.more_settings);
        Self { flags: self.flags.clone(), ..site }
    }

    /// As [`Site::new`], on topics that are there already, or are not.
    pub fn on(topics: Topics, brokers: String, more_settings: &str) -> Self {
        let dir = TempDir::with_prefix("adtrail-site-").expect("a temporary folder");
        let more_settings = more_settings.to_owned();
        let site = Self { dir, brokers, topics, more_settings, flags: Vec::new() };
        site.write_config(free_port(), free_port());
        site
    }

    /// With one setting of the tables that `more_settings` cannot repeat: `"store.retention"`.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.flag("--set").flag(&format!("{key}={value}"))
    }

    /// With one more word on the command line of every command.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("adtrail.toml")
    }

    /// `adtrail run`, ready to serve. May be called again after the one before has ended.
    pub fn start(&self) -> Adtrail {
        // Between the look for a free port and its use someone else may take it: once more then.
        self.try_start()
            .or_else(|_| self.try_start())
            .unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"))
    }

    /// As [`Site::start`], but an adtrail that ends instead of getting ready gives its log.
    pub fn try_start(&self) -> Result<Adtrail, String> {
        let mut adtrail = self.spawn();
        adtrail.await_ready()?;
        Ok(adtrail)
    }

    /// `adtrail run`, which may never get ready.
    pub fn spawn(&self) -> Adtrail {
        let (export, admin) = (free_port(), free_port());
        self.write_config(export, admin);
        Adtrail::spawn(self.command(&["run"]), export, admin)
    }

    /// Any command on this site's settings, not run yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = adtrail();
        command.args(args).arg("--config").arg(self.config()).args(&self.flags);
        command.current_dir(&self.dir);
        command
    }

    /// Any other command on this site's settings: `site.run(&["check-config"])`.
    pub fn run(&self, args: &[&str]) -> Output {
        run(&mut self.command(args), b"")
    }

    /// The CSV of an app, by the command that works beside a running service and without one.
    #[track_caller]
    pub fn download(&self, app: &str, from: &str, to: &str, more: &[&str]) -> Vec<u8> {
        let mut command = self.command(&["download", "--app", app, "--from", from, "--to", to]);
        run_ok(command.args(more), b"")
    }

    fn write_config(&self, export: u16, admin: u16) {
        let Self { brokers, more_settings, .. } = self;
        let Topics { clicks, activations, effects } = &self.topics;
        let store = self.dir.path().join("store");
        // A group of its own, so that sites on the same topics share none of their partitions.
        let group = self.dir.path().file_name().expect("a named folder").display();
        let text = format!(
            r#"[kafka]
brokers = "{brokers}"
group = "{group}"
clicks = "{clicks}"
activations = "{activations}"
effects = "{effects}"

[store]
path = "{}"

[export]
listen = "127.0.0.1:{export}"

[admin]
listen = "127.0.0.1:{admin}"

{more_settings}
"#,
            store.display()
        );
        fs::write(self.config(), text).expect("the settings can be written");
    }
}

/// A running `adtrail`, killed when dropped.
#[derive(Debug)]
pub struct Adtrail {
    child: Child,
    stderr: Captured,
    /// The users' listener, as `127.0.0.1:8080`.
    pub export: String,
    /// The operators' listener.
    pub admin: String,
}

impl Adtrail {
    fn spawn(mut command: Command, export: u16, admin: u16) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("adtrail starts");
        let stderr = Captured::from(child.stderr.take().expect("stderr is piped"));
        let [export, admin] = [export, admin].map(|port| format!("127.0.0.1:{port}"));
        Self { child, stderr, export, admin }
    }

    /// Until it serves and reads Kafka; its log, if it ends instead.
    pub fn await_ready(&mut self) -> Result<(), String> {
        eventually("adtrail is ready", || {
            if self.has_ended() {
                return Ok(Err(self.log()));
            }
            match self.admin("/readyz") {
                Ok(reply) if reply.status == 200 => Ok(Ok(())),
                Ok(reply) => Err(format!("{}: {}\n{}", reply.status, reply.text(), self.log())),
                Err(error) => Err(format!("{error}\n{}", self.log())),
            }
        })
    }

    /// Until this many records are read since its start, and nothing is left to commit.
    #[track_caller]
    pub fn await_read(&self, records: u64) {
        eventually("all is read and committed", || {
            let read = self.metric("adtrail_ingest_read_total");
            let lag = self.metric("adtrail_ingest_lag_messages");
            match (read, lag) {
                (Some(read), Some(0.0)) if read == records as f64 => Ok(()),
                _ => Err(format!("read {read:?} of {records}, lag {lag:?}\n{}", self.log())),
            }
        });
    }

    /// Until nothing is left of what was produced before it was started.
    #[track_caller]
    pub fn await_caught_up(&self) {
        eventually("the lag is 0", || match self.metric("adtrail_ingest_lag_messages") {
            Some(0.0) => Ok(()),
            lag => Err(format!("{lag:?}\n{}", self.log())),
        });
    }

    /// From the users' listener.
    pub fn get(&self, path: &str) -> io::Result<Reply> {
        http::get(&self.export, path)
    }

    /// From the operators' listener.
    pub fn admin(&self, path: &str) -> io::Result<Reply> {
        http::get(&self.admin, path)
    }

    /// A scrape.
    pub fn metrics(&self) -> String {
        let reply = self.admin("/metrics").expect("adtrail answers");
        assert!(reply.status == 200 && reply.is_whole, "no scrape: {reply:?}");
        reply.text()
    }

    /// The sum over all label values of a metric in one scrape; none is no value.
    pub fn metric(&self, name: &str) -> Option<f64> {
        sum(&self.metrics(), name, "")
    }

    /// As [`Adtrail::metric`], of the series with one label: `topic="…"`.
    pub fn metric_of(&self, name: &str, label: &str) -> Option<f64> {
        sum(&self.metrics(), name, label)
    }

    /// All that it has said on standard error.
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child can be asked").is_some()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, and what it ends with.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        run_ok(Command::new("kill").args(["-TERM", &self.pid().to_string()]), b"");
        let status = eventually("adtrail ends after SIGTERM", || {
            let ended = self.child.try_wait().expect("the child can be asked");
            ended.ok_or_else(|| self.log())
        });
        (status, self.log())
    }

    /// SIGKILL.
    pub fn kill9(mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }
}

impl Drop for Adtrail {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of a metric's series with a label, or, if that is empty, of all.
pub fn sum(scrape: &str, name: &str, label: &str) -> Option<f64> {
    let values = scrape.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.contains(label).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

/// The binary under test, untouched by settings of the caller's environment.
pub fn adtrail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adtrail"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ADTRAIL__")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG");
    command
}
