//! What tests use of the machine: environment variables, ports and a cache.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

/// Chooses the amount of random or repeated work of a test: `short` in `make test`, `long` with
/// `ADTRAIL_TEST_LONG`, which `make guarantees` and `make long-test` set.
pub fn length<T>(short: T, long: T) -> T {
    match std::env::var_os("ADTRAIL_TEST_LONG").is_some() {
        true => long,
        false => short,
    }
}

/// Returns the value of an environment variable, or `default` if it is not set.
#[must_use]
pub fn from_env<T: FromStr>(name: &str, default: T) -> T {
    let value = std::env::var(name).ok().map(|text| text.parse().ok());
    value.map_or(default, |value| value.unwrap_or_else(|| panic!("{name} has an invalid value")))
}

/// Returns a free port, never the same twice. It is below the range from which the system assigns ports to outgoing
/// connections, so that no outgoing connection takes it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static DRAWN: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes start at different ports.
    let start = (std::process::id().wrapping_mul(127) % u32::from(COUNT)) as u16;
    loop {
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
        assert!(drawn < COUNT, "no free port between {FIRST} and {}", FIRST + COUNT);
        let port =
            FIRST + (u32::from(start) + u32::from(drawn)).rem_euclid(u32::from(COUNT)) as u16;
        if claim(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Reserves a port among test processes until this process ends, by binding the UDP port of the same number.
fn claim(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).map(std::mem::forget).is_ok()
}

/// Returns the processors, memory, kernel and load of this machine, which benches print.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    // The first line is `MemTotal:`.
    let memory_kib: Option<u64> = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok());
    format!(
        "machine: {} processors ({}), {} GiB, Linux {}, load {}",
        std::thread::available_parallelism().map_or(0, usize::from),
        model.map_or("unknown model", |(_, model)| model),
        memory_kib.unwrap_or(0) / (1 << 20),
        kernel.trim(),
        load.split_whitespace().next().unwrap_or("unknown"),
    )
}

/// The cache for downloads, shared with the Makefile.
pub fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache")
    });
    base.join("adtrail")
}
