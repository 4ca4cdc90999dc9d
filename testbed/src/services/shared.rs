//! Services shared by a whole test run: `testbed serve` starts each one at the first request, which tests send over
//! the Unix socket that [`SOCKET`] names. Without that variable, every test process starts its own services.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The environment variable with the path of the socket.
pub const SOCKET: &str = "ADTRAIL_TESTBED";

/// The connection parameters of a running service: addresses, ports and directories by name.
#[derive(Debug, Default)]
pub struct Service(HashMap<String, String>);

impl Service {
    /// Requests a service by name, and waits until it runs. Returns `None` outside of `testbed serve`.
    ///
    /// # Panics
    /// Panics if the service did not start; the output of `testbed serve` says why.
    pub fn find(name: &str) -> Option<Self> {
        let path = std::env::var_os(SOCKET)?;
        let mut socket = UnixStream::connect(&path).expect("testbed serve is listening");
        writeln!(socket, "{name}").expect("testbed serve reads requests");
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("testbed serve responds in UTF-8");
        let service = Self::parse(&response);
        assert!(!service.0.is_empty(), "testbed serve could not provide {name}; see its output");
        Some(service)
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// Encodes one `name=value` per line.
    pub fn to_lines(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn parse(lines: &str) -> Self {
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("testbed serve did not send {name}"))
    }

    pub fn port(&self, name: &str) -> u16 {
        self.text(name).parse().expect("ports are numbers")
    }
}

/// Appends the start time of a service to the file that `ADTRAIL_TESTBED_STARTS` names; `scripts/test-times` adds
/// them up.
pub fn note_start(service: &str, since: Instant) {
    let Some(path) = std::env::var_os("ADTRAIL_TESTBED_STARTS") else { return };
    let line = format!("{service}\t{:.2}\n", since.elapsed().as_secs_f64());
    // A single write, so that lines of concurrent processes are not interleaved.
    let written = File::options()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("ADTRAIL_TESTBED_STARTS names a writable file");
}
