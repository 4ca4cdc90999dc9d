//! A place where adtrail runs: settings, a store and ports of its own, and topics in a Kafka.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::adtrail::{Adtrail, adtrail};
use super::kafka::Kafka;
use super::{free_port, run, run_ok};

/// The app `app-x` with one campaign, 7.
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

/// A place where adtrail runs: its settings, its store, and its topics in a Kafka.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
    brokers: String,
    pub topics: Topics,
    more_settings: String,
    /// Of every command.
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
        Self { flags: self.flags.clone(), is_impatient: self.is_impatient, ..site }
    }

    /// As [`Site::new`], on topics that are there already, or are not.
    pub fn on(topics: Topics, brokers: String, more_settings: &str) -> Self {
        let dir = TempDir::with_prefix("adtrail-site-").expect("a temporary folder");
        let more_settings = more_settings.to_owned();
        let (flags, is_impatient) = (Vec::new(), false);
        let site = Self { dir, brokers, topics, more_settings, flags, is_impatient };
        site.write_config(free_port(), free_port());
        site
    }

    /// The same place with other `more_settings`, from the next command on.
    pub fn change(&mut self, more_settings: &str) {
        self.more_settings = more_settings.to_owned();
        self.write_config(free_port(), free_port());
    }

    /// With one setting of the tables that `more_settings` cannot repeat: `"store.retention"`.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.flag("--set").flag(&format!("{key}={value}"))
    }

    /// adtrail waits a tenth of what it usually does before it looks again, retries, gives up or warns.
    pub fn impatient(self) -> Self {
        Self { is_impatient: true, ..self }
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

    /// A process of one role, ready for it: `"attribute"`, `"export"`, or `"run"` for all.
    pub fn start_role(&self, role: &str) -> Adtrail {
        let mut adtrail = self.spawn_as(role, &[]);
        adtrail.await_ready().unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"));
        adtrail
    }

    /// `adtrail run`, which may never get ready.
    pub fn spawn(&self) -> Adtrail {
        self.spawn_with(&[])
    }

    /// As [`Site::spawn`], in an environment of its own: `("RUST_LOG", "debug")`.
    pub fn spawn_with(&self, environment: &[(&str, &str)]) -> Adtrail {
        self.spawn_as("run", environment)
    }

    /// Where exports and operators will be served by a process that is started by [`Site::command`].
    pub fn addresses(&self) -> (String, String) {
        let (export, admin) = (free_port(), free_port());
        self.write_config(export, admin);
        (format!("127.0.0.1:{export}"), format!("127.0.0.1:{admin}"))
    }

    pub(crate) fn spawn_as(&self, role: &str, environment: &[(&str, &str)]) -> Adtrail {
        let (export, admin) = (free_port(), free_port());
        self.write_config(export, admin);
        let mut command = self.command(&[role]);
        command.envs(environment.iter().copied());
        Adtrail::spawn(command, export, admin)
    }

    /// Any command on this site's settings, not run yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = adtrail();
        command.args(args).arg("--config").arg(self.config()).args(&self.flags);
        command.current_dir(&self.dir);
        if self.is_impatient {
            command.env("ADTRAIL_TEST_TIME_DIVISOR", "10");
        }
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

    /// What `adtrail replay` makes of the events of an app, one on a line; other lines are left out.
    pub fn replay(&self, app: &str, events: &[u8]) -> Vec<u8> {
        run(&mut self.command(&["replay", "--app", app, "-"]), events).stdout
    }

    /// A file with all settings of every command in it.
    pub fn written(&self) -> PathBuf {
        self.write_config(free_port(), free_port());
        let mut text = fs::read_to_string(self.config()).expect("the settings");
        for setting in self.flags.iter().filter_map(|flag| flag.split_once('=')) {
            let (key, value) = setting;
            let (table, key) = key.rsplit_once('.').expect("a key in a table");
            let is_bare = value.starts_with('[') || value.parse::<i64>().is_ok();
            let value = if is_bare { value.to_owned() } else { format!("{value:?}") };
            let head = format!("[{table}]\n");
            if !text.contains(&head) {
                text.push_str(&head);
            }
            text = text.replacen(&head, &format!("{head}{key} = {value}\n"), 1);
        }
        let path = self.dir.path().join("whole.toml");
        fs::write(&path, text).expect("the settings can be written");
        path
    }

    /// A group of its own, so that sites on the same topics share none of their partitions.
    pub fn group(&self) -> String {
        let name = self.dir.path().file_name().expect("a named folder");
        name.to_str().expect("a name in UTF-8").to_owned()
    }

    fn write_config(&self, export: u16, admin: u16) {
        let Self { brokers, more_settings, .. } = self;
        let Topics { clicks, activations, effects } = &self.topics;
        let store = self.dir.path().join("store");
        let group = self.group();
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
