//! The services that a whole test run shares: `testbed serve` starts each one when the first test asks
//! for it, over the Unix socket that [`SOCKET`] names. Without that variable there is nothing to ask,
//! and every test process starts what it needs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The environment variable with the path of the socket.
pub const SOCKET: &str = "ADTRAIL_TESTBED";

/// What a test needs to know of a running service: addresses, ports and folders by name.
#[derive(Debug, Default)]
pub struct Service(HashMap<String, String>);

impl Service {
    /// Asks for a service by its name, and waits until it runs. `None` outside of `testbed serve`.
    ///
    /// # Panics
    /// If the service could not be started; the output of `testbed serve` says why.
    pub fn find(name: &str) -> Option<Self> {
        let path = std::env::var_os(SOCKET)?;
        let mut socket = UnixStream::connect(&path).expect("testbed serve listens");
        writeln!(socket, "{name}").expect("testbed serve reads requests");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("testbed serve answers in UTF-8");
        let service = Self::parse(&answer);
        assert!(!service.0.is_empty(), "testbed serve has no {name}; its output says why");
        Some(service)
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// One `name=value` per line.
    pub fn to_lines(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn parse(lines: &str) -> Self {
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("testbed serve does not say its {name}"))
    }

    pub fn port(&self, name: &str) -> u16 {
        self.text(name).parse().expect("testbed serve gives ports as numbers")
    }
}

/// Notes in the file that `ADTRAIL_TESTBED_STARTS` names how long a service took to start: `scripts/test-times` adds
/// them up.
pub fn note_start(service: &str, since: Instant) {
    let Some(path) = std::env::var_os("ADTRAIL_TESTBED_STARTS") else { return };
    let line = format!("{service}\t{:.2}\n", since.elapsed().as_secs_f64());
    // One write: lines of processes side by side stay whole.
    let written = File::options()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("ADTRAIL_TESTBED_STARTS names a file that can be written");
}
