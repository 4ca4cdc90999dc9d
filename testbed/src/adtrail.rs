//! The `adtrail` binary as a child process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, fs, io};

use super::http::{self, Reply};
use super::{Captured, eventually, kill};

/// A running `adtrail`. Dropping it kills the process.
#[derive(Debug)]
pub struct Adtrail {
    child: Child,
    stderr: Captured,
    /// Address of the export listener, for example `127.0.0.1:8080`.
    pub export: String,
    /// Address of the admin listener.
    pub admin: String,
}

impl Adtrail {
    /// Starts a command that listens on these ports.
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

    /// Waits until `/readyz` reports success. Returns the log if the process ends instead.
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

    /// Waits until this many records were read since the start, and the lag is 0.
    #[track_caller]
    pub fn await_read(&self, records: u64) {
        eventually("all records are read and committed", || {
            let read = self.metric("adtrail_ingest_read_total");
            let lag = self.metric("adtrail_ingest_lag_messages");
            match (read, lag) {
                (Some(read), Some(0.0)) if read == records as f64 => Ok(()),
                _ => Err(format!("read {read:?} of {records}, lag {lag:?}\n{}", self.log())),
            }
        });
    }

    /// Waits until at least one record was read since the start.
    #[track_caller]
    pub fn await_some_read(&self) {
        self.await_read_more_than(0);
    }

    /// Waits until more than this many records were read since the start.
    #[track_caller]
    pub fn await_read_more_than(&self, records: u64) {
        self.await_metric("adtrail_ingest_read_total", "", |read| read > records as f64);
    }

    /// Waits until the lag is 0.
    #[track_caller]
    pub fn await_caught_up(&self) {
        self.await_metric("adtrail_ingest_lag_messages", "", |lag| lag == 0.0);
    }

    /// Waits until a metric exists and has an expected value. `label` as for [`Adtrail::metric_of`].
    #[track_caller]
    pub fn await_metric(&self, name: &str, label: &str, is_expected: impl Fn(f64) -> bool) {
        eventually(name, || match self.metric_of(name, label) {
            Some(value) if is_expected(value) => Ok(()),
            value => Err(format!("{value:?}\n{}", self.log())),
        });
    }

    /// Waits until the log contains this text.
    #[track_caller]
    pub fn await_log(&self, part: &str) {
        self.await_line(&[part]);
    }

    /// Waits until a line of the log contains these parts.
    #[track_caller]
    pub fn await_line(&self, parts: &[&str]) {
        eventually(&format!("{parts:?} are logged"), || {
            let log = self.log();
            let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
            if log.lines().any(has_all) { Ok(()) } else { Err(log) }
        });
    }

    /// Waits until `/readyz` returns this status and text. `/livez` must succeed all the while.
    #[track_caller]
    pub fn await_readiness(&self, status: u16, part: &str) {
        eventually("the readiness changes", || match self.admin("/readyz") {
            Ok(reply) if reply.status == status && reply.text().contains(part) => Ok(()),
            Ok(reply) => Err(format!("{}: {}\n{}", reply.status, reply.text(), self.log())),
            Err(error) => Err(format!("{error}\n{}", self.log())),
        });
        assert_eq!(self.admin("/livez").expect("adtrail responds").status, 200);
    }

    /// Sends a request to the export listener.
    pub fn get(&self, path: &str) -> io::Result<Reply> {
        http::get(&self.export, path)
    }

    /// Sends a request to the admin listener.
    pub fn admin(&self, path: &str) -> io::Result<Reply> {
        http::get(&self.admin, path)
    }

    /// Requests a reload of the settings.
    pub fn reload(&self) -> Reply {
        http::request("POST", &self.admin, "/-/reload", &[]).expect("adtrail responds")
    }

    /// Scrapes `/metrics`.
    pub fn metrics(&self) -> String {
        let reply = self.admin("/metrics").expect("adtrail responds");
        assert!(reply.status == 200 && reply.is_whole, "failed scrape: {reply:?}");
        reply.text()
    }

    /// Returns the sum over all label values of a metric, `None` if the scrape does not contain it.
    pub fn metric(&self, name: &str) -> Option<f64> {
        sum(&self.metrics(), name, "")
    }

    /// Like [`Adtrail::metric`], for the series with one label: `topic="…"`.
    pub fn metric_of(&self, name: &str, label: &str) -> Option<f64> {
        sum(&self.metrics(), name, label)
    }

    /// Returns everything written to standard error so far.
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child can be polled").is_some()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number in a line of `/proc/PID/status`, for example of `"VmRSS:"`.
    pub fn status(&self, name: &str) -> u64 {
        let text =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process exists");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the line exists");
        line.split_whitespace()
            .next()
            .and_then(|text| text.parse().ok())
            .expect("the line has a number")
    }

    /// Does some work. Returns by how many MiB the peak of resident memory exceeds the memory before it.
    pub fn growth_mib(&self, work: impl FnOnce()) -> u64 {
        const RESET_PEAK: &str = "5";
        let path = format!("/proc/{}/clear_refs", self.pid());
        fs::write(path, RESET_PEAK).expect("the peak can be reset");
        let before_kib = self.status("VmHWM:");
        work();
        self.status("VmHWM:").saturating_sub(before_kib) / 1024
    }

    /// Returns the CPU time of all threads so far, in ticks of the kernel.
    pub fn cpu_ticks(&self) -> u64 {
        let text =
            fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the process exists");
        // The name before the bracket may contain spaces. User and system time are the 14th and 15th field.
        let (_, fields) = text.rsplit_once(')').expect("the process has a name");
        let times = fields.split_whitespace().skip(11).take(2);
        times.map(|ticks| ticks.parse::<u64>().expect("the field is a number")).sum()
    }

    /// Sends SIGTERM, and checks that the process exits with 0. Returns the log.
    #[track_caller]
    pub fn stop(self) -> String {
        let (status, log) = self.terminate();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Sends SIGTERM and waits. Returns the exit status and the log.
    pub fn terminate(self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    /// Sends a signal, for example `"TERM"` or `"INT"`, without waiting.
    pub fn signal(&self, name: &str) {
        kill(self.pid(), name);
    }

    /// Waits until the process ends by itself. Returns the exit status and the log.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = eventually("adtrail ends", || {
            let ended = self.child.try_wait().expect("the child can be polled");
            ended.ok_or_else(|| self.log())
        });
        (status, self.log())
    }

    /// Waits until the process ends by itself. Checks its exit code, and that these parts are in its log, which is
    /// returned.
    #[track_caller]
    pub fn check_ended(self, code: i32, parts: &[&str]) -> String {
        let (status, log) = self.wait();
        assert_eq!(status.code(), Some(code), "{status}: {log}");
        for part in parts {
            assert!(log.contains(part), "{part:?} is not in: {log}");
        }
        log
    }

    /// Sends SIGKILL and waits.
    pub fn kill9(mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }
}

impl Drop for Adtrail {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the sum of the series of a metric that contain a label, or of all series if `label` is empty.
pub fn sum(scrape: &str, name: &str, label: &str) -> Option<f64> {
    let values = scrape.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.contains(label).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

/// Returns a command that runs the binary under test, without the caller's environment variables for adtrail and for
/// OpenTelemetry.
pub fn adtrail() -> Command {
    command(&binary())
}

/// Like [`adtrail()`], for any binary.
pub fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    let is_for_adtrail =
        |name: &str| ["ADTRAIL_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in env::vars().filter(|(name, _)| is_for_adtrail(name)) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG");
    command
}

/// Returns the path of the binary. Cargo builds it before the tests and benches of its package, into the parent of
/// their directory.
pub fn binary() -> PathBuf {
    let this = env::current_exe().expect("the executable has a path");
    let dir = this.ancestors().nth(2).expect("cargo puts executables two directories deep");
    dir.join("adtrail")
}
