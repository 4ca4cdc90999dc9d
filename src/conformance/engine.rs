//! Engines turn the events of a case into rows: adtrail itself, or a command.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::builtin_engine::BuiltinEngine;
use super::case::Case;
use super::order::Order;

#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// The code of `adtrail replay`, in this process.
    Builtin,
    Command(Command),
}

/// A shell command, run once per case and order.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// In shell syntax; arguments are appended.
    pub line: String,
    /// Duration after which a run is killed.
    pub timeout: Duration,
}

/// Maximum number of characters of an engine's output in a message, which shows the end.
const OUTPUT_CHARS_MAX: usize = 300;
/// Maximum number of bytes read from the end of the output.
const OUTPUT_BYTES_MAX: u64 = 16 << 10;
/// Maximum length of the rows that an engine writes for a case.
const ROWS_MIB_MAX: u64 = 16;

/// The CSV of a case's rows, or the reason why the engine failed.
pub(super) type Rows = Result<Vec<u8>, String>;

impl Engine {
    /// Runs the case in every order.
    pub fn runs(&self, case: &Case) -> Vec<(Order, Rows)> {
        match self {
            Self::Builtin => {
                [[Order::Given, Order::GivenTwice], [Order::Reversed, Order::ReversedThenGiven]]
                    .into_iter()
                    .flat_map(|orders| orders.into_iter().zip(builtin_rows(case, orders[0])))
                    .collect()
            }
            Self::Command(command) => {
                Order::ALL.into_iter().map(|order| (order, command.rows(case, order))).collect()
            }
        }
    }
}

/// Returns the rows after all events in an order, and after redelivery of all events. Both use the same store, because
/// opening a store takes most of the time.
fn builtin_rows(case: &Case, order: Order) -> [Rows; 2] {
    let mut engine = open_builtin(case, order).map_err(|error| format!("{error:#}"));
    [order, Order::Given].map(|order| {
        let engine = engine.as_mut().map_err(|error| error.clone())?;
        let invalid = engine.attribute(&order.lines(case)).map_err(|error| format!("{error:#}"))?;
        if invalid != case.left_out {
            let expected = case.left_out;
            return Err(format!("lines that are not events: expected {expected}, found {invalid}"));
        }
        engine.csv().map_err(|error| format!("{error:#}"))
    })
}

fn open_builtin(case: &Case, order: Order) -> anyhow::Result<BuiltinEngine> {
    let mut config = config::parse(&case.settings)?;
    // Batches must not affect the rows: in reversed order each event is its own batch, otherwise all are in one.
    if order == Order::Reversed {
        config.ingest.batch_records_max = 1;
    }
    BuiltinEngine::open(config)
}

impl Command {
    fn rows(&self, case: &Case, order: Order) -> Rows {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [config, events, out, output] = ["config.toml", "events.ndjson", "out.csv", "output"]
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
        let shown = || shown_output(&output, folder.path()).unwrap_or_default();
        let Some(status) = self
            .run(&mut command, &output)
            .map_err(|error| format!("sh cannot be started: {error}"))?
        else {
            return Err(format!("timed out after {:?}{}", self.timeout, shown()));
        };
        // An engine may report skipped lines by its exit status.
        if !status.success() && case.left_out == 0 {
            return Err(format!("the engine failed with {status}{}", shown()));
        }
        read_rows(&out).map_err(|error| format!("{error}{}", shown()))
    }

    /// Runs the command in a separate process group; `None` if it was killed after the timeout. The output goes to a
    /// file, because reading a pipe would wait for background processes too.
    fn run(
        &self,
        command: &mut process::Command,
        output: &Path,
    ) -> io::Result<Option<process::ExitStatus>> {
        // All settings are in the case, so variables of the environment must not apply.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(config::PREFIX.as_bytes()) {
                command.env_remove(name);
            }
        }
        let output = File::create(output)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        let (sender, exit) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || sender.send(child.wait()));
            exit.recv_timeout(self.timeout).map(|status| status.map(Some)).unwrap_or_else(|_| {
                // An error means that the process has exited in the meantime.
                let _ = kill_process_group(group, Signal::KILL);
                Ok(None)
            })
        })
    }
}

/// Reads the rows that an engine has written, up to a limit, because an engine may write without end.
fn read_rows(out: &Path) -> Rows {
    let missing = |error: io::Error| format!("no file at --out: {error}");
    let mut rows = Vec::new();
    let file = File::open(out).map_err(missing)?;
    file.take((ROWS_MIB_MAX << 20) + 1).read_to_end(&mut rows).map_err(missing)?;
    if rows.len() as u64 > ROWS_MIB_MAX << 20 {
        return Err(format!("the file at --out is longer than {ROWS_MIB_MAX} MiB"));
    }
    Ok(rows)
}

/// Returns the end of an engine's output, in one line.
fn shown_output(output: &Path, folder: &Path) -> io::Result<String> {
    let mut file = File::open(output)?;
    let start = file.metadata()?.len().saturating_sub(OUTPUT_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut end)?;
    // The name of the folder differs in each run.
    let end = String::from_utf8_lossy(&end).replace(&*folder.to_string_lossy(), "…");
    let lines: Vec<&str> = end.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines.join(" | ");
    let skipped = end.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    let end: String = end.chars().skip(skipped).collect();
    Ok(if end.is_empty() { ", without output".into() } else { format!(", with output: {end}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_up_to_the_limit_are_read() {
        let out = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: u64| {
            out.as_file().set_len(bytes).unwrap();
            read_rows(out.path()).map(|rows| rows.len() as u64)
        };
        assert_eq!(read(16 << 20), Ok(16 << 20));
        let error = "the file at --out is longer than 16 MiB";
        assert_eq!(read((16 << 20) + 1), Err(error.to_owned()));
    }
}
