//! Injects disk errors, lost responses and clock changes into a process. `faults/faults.c` is compiled here and
//! preloaded into the process; a shared file controls it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::adtrail::Adtrail;
use super::run_ok;
use super::site::Site;

/// Linux error numbers.
pub const EIO: i32 = 5;
pub const EROFS: i32 = 30;
pub const ECONNRESET: i32 = 104;

/// Beside [`Calls`]: writes to table files are slow.
const SLOW_TABLES: u32 = 32;

/// Groups of system calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    Writes = 1,
    Syncs = 2,
    Reads = 4,
    /// Received data of the given servers: a request is executed, but its response is lost.
    Responses = 16,
}

/// Controls the faults of the processes that are started with it.
#[derive(Debug)]
pub struct Faults {
    library: PathBuf,
    control: PathBuf,
    shared: File,
    /// Calls on files in this directory fail.
    dir: PathBuf,
    /// Ports of the servers whose responses can be lost, comma-separated.
    ports: String,
}

impl Faults {
    /// Controls the processes of a site, with failing calls on the files of its store.
    pub fn of(site: &Site) -> Self {
        Self::on(site, &site.path().join("store"))
    }

    /// Like [`Faults::of`], with failing calls on the files of this directory.
    pub fn on(site: &Site, dir: &Path) -> Self {
        let [library, control] = ["faults.so", "faults.control"].map(|name| site.path().join(name));
        compile(&library);
        fs::write(&control, [0; 40]).expect("the file is written");
        let shared =
            File::options().read(true).write(true).open(&control).expect("the file can be opened");
        // Resolved, because the kernel reports the paths of open files without links.
        let dir = fs::canonicalize(site.path())
            .expect("the directory exists")
            .join(dir.strip_prefix(site.path()).expect("the directory belongs to the site"));
        Self { library, control, shared, dir, ports: String::new() }
    }

    /// Adds servers whose responses can be lost.
    pub fn with_ports(self, ports: &[u16]) -> Self {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        Self { ports: ports.join(","), ..self }
    }

    /// Starts `adtrail run`, which may never become ready.
    pub fn spawn(&self, site: &Site) -> Adtrail {
        self.spawn_role(site, "run")
    }

    fn spawn_role(&self, site: &Site, role: &str) -> Adtrail {
        let text = |path: &Path| path.to_str().expect("the path is valid UTF-8").to_owned();
        site.spawn_as(
            role,
            &[
                ("LD_PRELOAD", &text(&self.library)),
                ("FAULTS", &text(&self.control)),
                ("FAULTS_DIR", &text(&self.dir)),
                ("FAULTS_PORTS", &self.ports),
            ],
        )
    }

    /// Starts `adtrail run`, and waits until it is ready.
    pub fn start(&self, site: &Site) -> Adtrail {
        self.start_role(site, "run")
    }

    /// Like [`Site::start_role`].
    pub fn start_role(&self, site: &Site, role: &str) -> Adtrail {
        let mut adtrail = self.spawn_role(site, role);
        adtrail.await_ready().unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"));
        adtrail
    }

    /// Sets how far the system clock is ahead (or behind, if negative).
    pub fn set_clock(&self, ahead_ms: i64) {
        self.write(0, &ahead_ms.to_le_bytes());
    }

    /// Lets this number of calls succeed, and makes the next ones fail.
    pub fn fail(&self, calls: Calls, error: i32, successes: u64, failures: u64) {
        self.mend();
        self.write(12, &error.to_le_bytes());
        self.write(16, &successes.to_le_bytes());
        self.write(24, &failures.to_le_bytes());
        self.write(8, &(calls as u32).to_le_bytes());
    }

    /// Delays each write to a table file of the store.
    pub fn delay_table_writes(&self, delay: Duration) {
        self.mend();
        let delay_ms = u64::try_from(delay.as_millis()).expect("the delay is short");
        self.write(16, &delay_ms.to_le_bytes());
        self.write(8, &SLOW_TABLES.to_le_bytes());
    }

    /// Stops all failures.
    pub fn mend(&self) {
        self.write(8, &[0; 4]);
    }

    /// Returns the number of calls that have failed since the start.
    pub fn failed(&self) -> u64 {
        let mut count = [0; 8];
        self.shared.read_exact_at(&mut count, 32).expect("the file can be read");
        u64::from_le_bytes(count)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.shared.write_all_at(bytes, at).expect("the file can be written");
    }
}

/// Compiles `faults.c` to a shared library.
pub fn compile(library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/faults/faults.c");
    let mut compile = Command::new("cc");
    run_ok(compile.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library).arg(source), b"");
}
