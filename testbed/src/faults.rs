//! A disk that fails, answers that are lost and a clock that is set, for some processes:
//! `faults/faults.c`, which is compiled here and loaded into them before their own libraries. What it does is said in a file that both have.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::adtrail::Adtrail;
use super::run_ok;
use super::site::Site;

/// What the calls of a group fail with, as Linux numbers it.
pub const EIO: i32 = 5;
pub const EROFS: i32 = 30;
pub const ECONNRESET: i32 = 104;

/// Groups of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    Writes = 1,
    Syncs = 2,
    Reads = 4,
    /// What comes from the servers that are named, whatever they have done to be asked.
    Answers = 16,
}

/// What can be done to the processes that are started with it.
#[derive(Debug)]
pub struct Faults {
    library: PathBuf,
    control: PathBuf,
    shared: File,
    /// On whose files calls fail.
    folder: PathBuf,
    /// Of the servers whose answers are lost.
    ports: String,
}

impl Faults {
    /// For processes of a site, on the files of its store.
    pub fn of(site: &Site) -> Self {
        Self::on(site, &site.path().join("store"))
    }

    /// As [`Faults::of`], on the files of this folder.
    pub fn on(site: &Site, folder: &Path) -> Self {
        let [library, control] = ["faults.so", "faults.control"].map(|name| site.path().join(name));
        compile(&library);
        fs::write(&control, [0; 40]).expect("a file");
        let shared = File::options().read(true).write(true).open(&control).expect("the file");
        // As the kernel names open files.
        let folder = fs::canonicalize(site.path())
            .expect("a folder")
            .join(folder.strip_prefix(site.path()).expect("a folder of the site"));
        Self { library, control, shared, folder, ports: String::new() }
    }

    /// With these servers' answers.
    pub fn with_ports(self, ports: &[u16]) -> Self {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        Self { ports: ports.join(","), ..self }
    }

    /// `adtrail run`, which may never get ready.
    pub fn spawn(&self, site: &Site) -> Adtrail {
        self.spawn_role(site, "run")
    }

    fn spawn_role(&self, site: &Site, role: &str) -> Adtrail {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        site.spawn_as(
            role,
            &[
                ("LD_PRELOAD", &text(&self.library)),
                ("FAULTS", &text(&self.control)),
                ("FAULTS_DIR", &text(&self.folder)),
                ("FAULTS_PORTS", &self.ports),
            ],
        )
    }

    /// `adtrail run`, ready to serve.
    pub fn start(&self, site: &Site) -> Adtrail {
        self.start_role(site, "run")
    }

    /// As [`Site::start_role`].
    pub fn start_role(&self, site: &Site, role: &str) -> Adtrail {
        let mut adtrail = self.spawn_role(site, role);
        adtrail.await_ready().unwrap_or_else(|log| panic!("adtrail does not start:\n{log}"));
        adtrail
    }

    /// Sets the machine's clock ahead, or back.
    pub fn set_clock(&self, ahead_ms: i64) {
        self.write(0, &ahead_ms.to_le_bytes());
    }

    /// After so many calls that go well so many fail.
    pub fn fail(&self, calls: Calls, error: i32, well: u64, fail: u64) {
        self.mend();
        self.write(12, &error.to_le_bytes());
        self.write(16, &well.to_le_bytes());
        self.write(24, &fail.to_le_bytes());
        self.write(8, &(calls as u32).to_le_bytes());
    }

    /// From now on all calls go well.
    pub fn mend(&self) {
        self.write(8, &[0; 4]);
    }

    /// Calls that have failed, ever.
    pub fn failed(&self) -> u64 {
        let mut count = [0; 8];
        self.shared.read_exact_at(&mut count, 32).expect("the file");
        u64::from_le_bytes(count)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.shared.write_all_at(bytes, at).expect("the file");
    }
}

/// Makes the library of `faults.c`, to be loaded into a process.
pub fn compile(library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/faults/faults.c");
    let mut compile = Command::new("cc");
    run_ok(compile.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library).arg(source), b"");
}
