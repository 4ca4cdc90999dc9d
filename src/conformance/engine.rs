//! What turns the events of a case into rows: adtrail itself, or a command.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::builtin_engine::Own;
use super::case::Case;
use super::order::Order;

#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// The code of `adtrail replay`, in this process.
    Own,
    Command(Command),
}

/// A command of the shell, run once per case and order.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// As the shell reads it; the arguments come after it.
    pub line: String,
    /// After which a run is ended.
    pub timeout: Duration,
}

/// Of what an engine says, so much is told.
const SAID_CHARS_MAX: usize = 300;
/// So much of its end is read for that.
const SAID_END_BYTES: u64 = 16 << 10;
/// So much is kept: a disk must not fill with it.
const SAID_BYTES_MAX: u64 = 16 << 20;
/// How often it is looked how much there is.
const LOOK: Duration = Duration::from_millis(100);

/// The CSV of a case's rows, or why there is none.
pub(super) type Rows = Result<Vec<u8>, String>;

impl Engine {
    /// The rows of the case in every order.
    pub fn runs(&self, case: &Case) -> Vec<(Order, Rows)> {
        match self {
            Self::Own => {
                [[Order::Given, Order::GivenTwice], [Order::Reversed, Order::ReversedThenGiven]]
                    .into_iter()
                    .flat_map(|orders| orders.into_iter().zip(own_rows(case, orders[0])))
                    .collect()
            }
            Self::Command(command) => {
                Order::ALL.into_iter().map(|order| (order, command.rows(case, order))).collect()
            }
        }
    }
}

/// The rows in an order, and those after all events came once more, in the same store: opening
/// one is what takes time.
fn own_rows(case: &Case, order: Order) -> [Rows; 2] {
    let mut config = match config::parse(&case.settings) {
        Ok(config) => config,
        Err(errors) => return [Err(errors.to_string()), Err(errors.to_string())],
    };
    // Once all in one batch, once each event alone: the rows may not differ.
    if order == Order::Reversed {
        config.ingest.batch_records_max = 1;
    }
    match Own::open(config) {
        Err(error) => [Err(format!("{error:#}")), Err(format!("{error:#}"))],
        Ok(mut own) => [order, Order::Given].map(|order| {
            let left_out = own.take_in(&order.lines(case)).map_err(|error| format!("{error:#}"))?;
            let expected = case.left_out;
            if left_out == expected {
                own.csv().map_err(|error| format!("{error:#}"))
            } else {
                Err(format!("lines that are no events: expected {expected}, found {left_out}"))
            }
        }),
    }
}

impl Command {
    fn rows(&self, case: &Case, order: Order) -> Rows {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [config, events, out, said] = ["config.toml", "events.ndjson", "out.csv", "said"]
            .map(|name| folder.path().join(name));
        fs::write(&config, &case.settings).map_err(|error| error.to_string())?;
        fs::write(&events, order.lines(case)).map_err(|error| error.to_string())?;
        let mut command = process::Command::new("sh");
        command
            .args(["-c", &format!("{} \"$@\"", self.line), "engine", "--config"])
            .arg(&config)
            .arg("--out")
            .arg(&out)
            .arg(&events)
            .env("ADTRAIL_CONFORMANCE_CASE", &case.name)
            .env("ADTRAIL_CONFORMANCE_ORDER", order.name());
        let said = Said { path: &said, folder: &folder, before: RefCell::default() };
        let status = self.end_of(said.start(command)?, &said)?;
        // One who leaves lines out may say so with its exit.
        if !status.success() && case.left_out == 0 {
            return Err(format!("the engine ended with {status}{}", said.shown()));
        }
        fs::read(&out).map_err(|error| format!("no rows at --out: {error}{}", said.shown()))
    }

    fn end_of(&self, mut child: Child, said: &Said<'_>) -> Result<ExitStatus, String> {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || ended.send(child.wait()));
            let started = Instant::now();
            loop {
                let left = self.timeout.saturating_sub(started.elapsed());
                if let Ok(status) = end.recv_timeout(left.min(LOOK)) {
                    return status.map_err(|error| error.to_string());
                }
                if left.is_zero() {
                    break;
                }
                said.bound();
            }
            // All that it started, too. An error means that it has ended meanwhile.
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Err(format!("not done within {:?}{}", self.timeout, said.shown()))
        })
    }
}

/// What a command writes to its standard outputs. In a file: a pipe that a grandchild keeps open
/// would be waited for.
struct Said<'a> {
    path: &'a Path,
    folder: &'a TempDir,
    /// The end of what stood there before it was emptied.
    before: RefCell<Vec<u8>>,
}

impl Said<'_> {
    fn start(&self, mut command: process::Command) -> Result<Child, String> {
        // Each write goes to the end, also after it was emptied.
        let log = OpenOptions::new().create(true).append(true).open(self.path);
        let log = log.map_err(|error| error.to_string())?;
        let log_too = log.try_clone().map_err(|error| error.to_string())?;
        // The settings are the case's alone.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ADTRAIL__") {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(log).stderr(log_too).process_group(0);
        command.spawn().map_err(|error| format!("sh can not be started: {error}"))
    }

    /// Empties it when there is too much.
    fn bound(&self) {
        let is_too_long = |log: &File| log.metadata().is_ok_and(|of| of.len() > SAID_BYTES_MAX);
        if let Ok(log) = OpenOptions::new().append(true).open(self.path)
            && is_too_long(&log)
        {
            self.before.replace(self.end().unwrap_or_default());
            // If that fails it grows on: nothing depends on it.
            let _ = log.set_len(0);
        }
    }

    /// Its last bytes.
    fn end(&self) -> std::io::Result<Vec<u8>> {
        let mut log = File::open(self.path)?;
        let start = log.metadata()?.len().saturating_sub(SAID_END_BYTES);
        log.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        log.take(SAID_END_BYTES).read_to_end(&mut end)?;
        Ok(end)
    }

    /// Its end, in one line.
    fn shown(&self) -> String {
        let said = [self.before.borrow().clone(), self.end().unwrap_or_default()].concat();
        let said = String::from_utf8_lossy(&said);
        // The folder has another name in each run.
        let said = said.replace(&*self.folder.path().to_string_lossy(), "…");
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines.join(" | ");
        let skipped = said.chars().count().saturating_sub(SAID_CHARS_MAX);
        let end: String = said.chars().skip(skipped).collect();
        if end.is_empty() { ", and said nothing".into() } else { format!(", and said: {end}") }
    }
}
