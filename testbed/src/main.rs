//! `testbed serve COMMAND…` runs a command whose tests share one Kafka, one secured Kafka, one HBase and one schema
//! registry. Each service is started at the first request, and all are stopped after the command has ended.
#![allow(clippy::expect_used, reason = "test support fails loudly")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use adtrail_testbed::hbase::cluster::HBase;
use adtrail_testbed::kafka::{Kafka, Secured};
use adtrail_testbed::registry::Registry;
use adtrail_testbed::shared::{SOCKET, Service};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

const USAGE: &str = "usage: testbed serve COMMAND [ARGUMENT...]
Runs COMMAND with services that all its tests share.";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (verb, command) = (args.next(), args.next());
    match (verb.as_ref().and_then(|verb| verb.to_str()), command) {
        (Some("serve"), Some(command)) => serve(Command::new(command).args(args)),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn serve(command: &mut Command) -> ExitCode {
    let dir = socket_dir();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("the socket is bound");
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            // One thread per request, so that a service that is starting does not delay requests for others.
            thread::spawn(move || handle(socket));
        }
    });
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).expect("the signal handlers are installed");
    let status = command.env(SOCKET, &path).spawn().and_then(|mut child| {
        let pid = Pid::from_child(&child);
        thread::spawn(move || {
            for signal in signals.forever() {
                forward(signal, pid);
            }
        });
        child.wait()
    });
    SERVICES.stop();
    match status {
        Ok(status) => status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(error) => {
            eprintln!("testbed: {command:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Creates a directory whose path leaves enough of the 108 bytes that the system allows for a socket path.
fn socket_dir() -> TempDir {
    const PATH_MAX: usize = 90;
    let base = std::env::temp_dir();
    let base = if base.as_os_str().as_bytes().len() > PATH_MAX { "/tmp".into() } else { base };
    TempDir::with_prefix_in("testbed-", base).expect("the directory is created")
}

/// Forwards a signal to the command, so that it ends before its services. A terminal sends SIGINT to both by itself.
fn forward(signal: i32, pid: Pid) {
    if signal != SIGINT
        && let Some(signal) = Signal::from_named_raw(signal)
    {
        // An error means that the command has already ended.
        let _ = kill_process(pid, signal);
    }
}

fn handle(mut socket: UnixStream) {
    let mut name = String::new();
    if BufReader::new(&socket).read_line(&mut name).is_err() {
        return;
    }
    if let Some(service) = SERVICES.find(name.trim()) {
        // An error means that the client is gone.
        let _ = socket.write_all(service.to_lines().as_bytes());
    }
}

static SERVICES: Services = Services {
    kafka: Mutex::new(None),
    secured: Mutex::new(None),
    registry: Mutex::new(None),
    hbase: Mutex::new(None),
};

struct Services {
    kafka: Mutex<Option<Kafka>>,
    secured: Mutex<Option<Secured>>,
    registry: Mutex<Option<Registry>>,
    hbase: Mutex<Option<HBase>>,
}

impl Services {
    /// Returns a service, and starts it if necessary.
    fn find(&self, name: &str) -> Option<Service> {
        match name {
            "kafka" => Some(started(&self.kafka, Kafka::start_to_hang, Kafka::service)),
            "secured-kafka" => Some(started(&self.secured, Secured::start, Secured::service)),
            "registry" => Some(started(&self.registry, Registry::start, Registry::service)),
            "hbase" => Some(started(&self.hbase, HBase::start_to_share, HBase::service)),
            _ => None,
        }
    }

    /// Stops all services and waits for them.
    fn stop(&self) {
        drop(lock(&self.kafka).take());
        drop(lock(&self.secured).take());
        drop(lock(&self.registry).take());
        drop(lock(&self.hbase).take());
    }
}

fn started<T>(
    service: &Mutex<Option<T>>,
    start: impl FnOnce() -> T,
    describe: impl FnOnce(&T) -> Service,
) -> Service {
    describe(lock(service).get_or_insert_with(start))
}

/// Locks a service, ignoring poison: the lock is poisoned if the service failed to start, and the next request retries.
fn lock<T>(service: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
