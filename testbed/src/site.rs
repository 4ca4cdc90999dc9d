//! An installation of adtrail for a test: its settings, store, ports and topics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use toml::Table;

use super::adtrail::{Adtrail, binary, command};
use super::kafka::Kafka;
use super::{free_port, run, run_ok};

/// Settings of the app `app-x` with one campaign, 7.
pub const ONE_CAMPAIGN: &str = r#"
[[apps]]
pid = 1
key = "app-x"
[[channels]]
id = "toutiao"
[[campaigns]]
spreadid = 7
pid = 1
channel = "toutiao"
"#;

/// Settings of another app, `app-y`, without campaigns.
pub const SECOND_APP: &str = r#"
[[apps]]
pid = 2
key = "app-y"
"#;

/// An installation of adtrail: its settings, its store, and its topics in a Kafka. Rows do not expire, because most
/// tests have events of fixed dates.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
    brokers: String,
    pub topics: Topics,
    more_settings: String,
    binary: PathBuf,
    /// Appended to every command.
    flags: Vec<String>,
    is_impatient: bool,
}

#[derive(Debug, Clone)]
pub struct Topics {
    pub clicks: String,
    pub activations: String,
    pub effects: String,
}

impl Topics {
    /// The topics of the test with this name.
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
    /// Creates the topics and the settings. `name` makes the topics unique. `more_settings` is TOML with the apps
    /// and other settings, except those of `[kafka]`, `[store]`, `[export]` and `[admin]`.
    pub fn new(kafka: &Kafka, name: &str, partitions: i32, more_settings: &str) -> Self {
        let topics = Topics::of(name);
        for topic in topics.all() {
            kafka.create_topic(topic, partitions, &[]);
            // The dead-letter topic.
            kafka.create_topic(&format!("{topic}.dlq"), 1, &[]);
        }
        Self::on(topics, kafka.brokers(), more_settings)
    }

    /// Another installation on the same topics, with an empty store, which reads all records from the beginning.
    pub fn beside(&self) -> Self {
        let site = Self::on(self.topics.clone(), self.brokers.clone(), &self.more_settings);
        Self {
            binary: self.binary.clone(),
            flags: self.flags.clone(),
            is_impatient: self.is_impatient,
            ..site
        }
    }

    /// Like [`Site::new`], without creating the topics.
    pub fn on(topics: Topics, brokers: String, more_settings: &str) -> Self {
        let dir = TempDir::with_prefix("adtrail-site-").expect("the directory is created");
        let more_settings = more_settings.to_owned();
        let (binary, flags, is_impatient) = (binary(), Vec::new(), false);
        let site = Self { dir, brokers, topics, more_settings, binary, flags, is_impatient };
        site.write_config(free_port(), free_port());
        site
    }

    /// Replaces `more_settings` for all later commands.
    pub fn change(&mut self, more_settings: &str) {
        self.more_settings = more_settings.to_owned();
        self.write_config(free_port(), free_port());
    }

    /// Replaces `more_settings` in the file of a running process, which keeps its ports and does not know of it yet.
    pub fn change_beside(&mut self, adtrail: &Adtrail, more_settings: &str) {
        self.more_settings = more_settings.to_owned();
        let port = |address: &str| -> u16 {
            let (_, port) = address.rsplit_once(':').expect("the address has a port");
            port.parse().expect("the port is a number")
        };
        self.write_config(port(&adtrail.export), port(&adtrail.admin));
    }

    /// Overrides one setting of the tables that `more_settings` cannot contain, for example `"store.memory"`.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.flag("--set").flag(&format!("{key}={value}"))
    }

    /// Reduces all waiting times of adtrail to a tenth: polling, retries, timeouts and warnings.
    pub fn impatient(self) -> Self {
        Self { is_impatient: true, ..self }
    }

    /// Runs all commands with another binary than the one under test.
    pub fn with_binary(self, binary: &Path) -> Self {
        Self { binary: binary.to_owned(), ..self }
    }

    /// Adds an argument to all commands.
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

    /// Starts `adtrail run`, and waits until it is ready. May be called again after the previous process has ended.
    pub fn start(&self) -> Adtrail {
        // Another process may take a port between `free_port` and its use: retry once.
        self.try_start()
            .or_else(|_| self.try_start())
            .unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"))
    }

    /// Like [`Site::start`], but returns the log if adtrail ends instead of becoming ready.
    pub fn try_start(&self) -> Result<Adtrail, String> {
        let mut adtrail = self.spawn();
        adtrail.await_ready()?;
        Ok(adtrail)
    }

    /// Starts a process with one role (`"attribute"`, `"export"`, or `"run"` for all), and waits until it is ready.
    pub fn start_role(&self, role: &str) -> Adtrail {
        let mut adtrail = self.spawn_as(role, &[]);
        adtrail.await_ready().unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"));
        adtrail
    }

    /// Starts `adtrail run`, which may never become ready.
    pub fn spawn(&self) -> Adtrail {
        self.spawn_with(&[])
    }

    /// Like [`Site::spawn`], with environment variables such as `("RUST_LOG", "debug")`.
    pub fn spawn_with(&self, environment: &[(&str, &str)]) -> Adtrail {
        self.spawn_as("run", environment)
    }

    /// Assigns new ports. Returns the export and the admin address of the next process started with
    /// [`Site::command`].
    pub fn addresses(&self) -> (String, String) {
        let (export, admin) = (free_port(), free_port());
        self.write_config(export, admin);
        (format!("127.0.0.1:{export}"), format!("127.0.0.1:{admin}"))
    }

    /// Starts a process with this role, and with these environment variables.
    pub fn spawn_as(&self, role: &str, environment: &[(&str, &str)]) -> Adtrail {
        let (export, admin) = (free_port(), free_port());
        self.write_config(export, admin);
        let mut command = self.command(&[role]);
        command.envs(environment.iter().copied());
        Adtrail::spawn(command, export, admin)
    }

    /// A command with this site's settings, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&self.binary);
        command.args(args).arg("--config").arg(self.config()).args(&self.flags);
        command.current_dir(&self.dir);
        if self.is_impatient {
            command.env("ADTRAIL_TEST_TIME_DIVISOR", "10");
        }
        command
    }

    /// Runs a command with this site's settings, for example `site.run(&["check-config"])`.
    pub fn run(&self, args: &[&str]) -> Output {
        run(&mut self.command(args), b"")
    }

    /// Downloads the CSV of an app with `adtrail download`, which works with and without a running service.
    #[track_caller]
    pub fn download(&self, app: &str, from: &str, to: &str, more: &[&str]) -> Vec<u8> {
        let mut command = self.command(&["download", "--app", app, "--from", from, "--to", to]);
        run_ok(command.args(more), b"")
    }

    /// Runs `adtrail run` until it has read everything. Returns the number of records.
    #[track_caller]
    pub fn read_all(&self) -> u64 {
        let adtrail = self.start();
        adtrail.await_caught_up();
        let read = adtrail.metric("adtrail_ingest_read_total").expect("the metric exists");
        adtrail.stop();
        read as u64
    }

    /// Creates a token. Returns it, and its entry for the settings.
    pub fn new_token(&self, options: &[&str]) -> (String, String) {
        let shown = run_ok(self.command(&["token", "new"]).args(options), b"");
        let shown = String::from_utf8(shown).expect("valid UTF-8");
        let (token, entry) =
            shown.split_once("\n\n").expect("the output has a token and its entry");
        (token.to_owned(), entry.to_owned())
    }

    /// Creates a file in the site's directory. Returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        fs::write(&path, text).expect("the file is written");
        path.to_str().expect("the path is valid UTF-8").to_owned()
    }

    /// Returns the output of `adtrail replay` for the events of an app, one per line. Invalid lines are skipped.
    pub fn replay(&self, app: &str, events: &[u8]) -> Vec<u8> {
        run(&mut self.command(&["replay", "--app", app, "-"]), events).stdout
    }

    /// Writes all settings, including overrides, to a file, and returns its path.
    pub fn write_all_settings(&self) -> String {
        self.write_config(free_port(), free_port());
        let text = fs::read_to_string(self.config()).expect("the settings can be read");
        let mut settings: Table = text.parse().expect("the settings are valid TOML");
        for (key, value) in self.flags.iter().filter_map(|flag| flag.split_once('=')) {
            let (path, key) = key.rsplit_once('.').expect("the key names a table");
            let table = path.split('.').fold(&mut settings, |table, name| {
                let inner = table.entry(name).or_insert_with(|| Table::new().into());
                inner.as_table_mut().expect("the key names a table")
            });
            let is_bare = value.starts_with('[') || value.parse::<i64>().is_ok();
            let value = if is_bare { value.to_owned() } else { format!("{value:?}") };
            table.insert(key.to_owned(), value.parse().expect("the value is valid TOML"));
        }
        self.write("whole.toml", settings.to_string())
    }

    /// The consumer group, unique per site, so that sites on the same topics do not share partitions.
    pub fn group(&self) -> String {
        let name = self.dir.path().file_name().expect("the directory has a name");
        name.to_str().expect("the name is valid UTF-8").to_owned()
    }

    fn write_config(&self, export: u16, admin: u16) {
        let Self { brokers, more_settings, .. } = self;
        let Topics { clicks, activations, effects } = &self.topics;
        let (store, group) = (self.path().join("store").display().to_string(), self.group());
        let text = format!(
            r#"[kafka]
brokers = "{brokers}"
group = "{group}"
clicks = "{clicks}"
activations = "{activations}"
effects = "{effects}"

[store]
path = "{store}"
retention = "off"

[export]
listen = "127.0.0.1:{export}"

[admin]
listen = "127.0.0.1:{admin}"

{more_settings}
"#
        );
        fs::write(self.config(), text).expect("the settings can be written");
    }
}
