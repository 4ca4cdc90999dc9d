//! The real binary as a child process.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::http::{self, Reply};
use super::{Captured, eventually, run_ok};

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
    /// Runs a command that listens on these ports.
    pub fn spawn(mut command: Command, export: u16, admin: u16) -> Self {
        let stderr = Captured::empty();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.sink())
            .spawn()
            .expect("adtrail starts");
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

    /// Until something is read and committed since its start.
    #[track_caller]
    pub fn await_some_read(&self) {
        self.await_read_more_than(0);
    }

    /// Until more than so many records are read and committed since its start.
    #[track_caller]
    pub fn await_read_more_than(&self, records: u64) {
        eventually("more is read", || match self.metric("adtrail_ingest_read_total") {
            Some(read) if read > records as f64 => Ok(()),
            read => Err(format!("{read:?} of more than {records}\n{}", self.log())),
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

    /// Until the probe answers so; it is alive all the while.
    #[track_caller]
    pub fn await_readiness(&self, status: u16, part: &str) {
        eventually("it says how it is", || match self.admin("/readyz") {
            Ok(reply) if reply.status == status && reply.text().contains(part) => Ok(()),
            Ok(reply) => Err(format!("{}: {}\n{}", reply.status, reply.text(), self.log())),
            Err(error) => Err(format!("{error}\n{}", self.log())),
        });
        assert_eq!(self.admin("/livez").expect("adtrail answers").status, 200);
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

    /// All that it has said on standard error so far.
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
    pub fn terminate(self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    /// `"TERM"`, `"INT"`: sent, and not waited for.
    pub fn signal(&self, name: &str) {
        run_ok(Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]), b"");
    }

    /// What it ends with, by itself.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = eventually("adtrail ends", || {
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
    let mut command = Command::new(binary());
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("ADTRAIL_")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG");
    command
}

/// Cargo builds it before the tests and benches of its package, into the folder above theirs.
pub fn binary() -> PathBuf {
    let this = env::current_exe().expect("a program has a path");
    let folder = this.ancestors().nth(2).expect("a program of cargo's is two folders deep");
    folder.join("adtrail")
}
