//! Shared by the benches: the generated events, the progress of adtrail, and CPU time and memory of a process.

#![allow(dead_code, reason = "no bench uses all functions")]

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::adtrail::{Adtrail, command};
use testbed::run_ok;
use testbed::traffic::Family;

/// Settings with the app of the events.
pub const APP: &str = r#"
[attribution]
correction_horizon = "off"

[[apps]]
pid = 1
key = "app-bench"

[[channels]]
id = "channel-1"

[[campaigns]]
spreadid = 7
pid = 1
channel = "channel-1"
name = "Spring"
"#;

pub const APP_KEY: &str = "app-bench";

/// The time of the first event by default: 2026-03-01T00:00:00Z, in ms since 1970.
pub const START_MS: u64 = 1_772_323_200_000;
/// One event every 10 ms.
const STEP_MS: u64 = 10;

/// Generates clicks of about 450 bytes, each with one device id and a click id. Every 100 clicks, a device that clicked
/// shortly before sends an activation and three effects.
#[derive(Debug)]
pub struct Events {
    start_ms: u64,
    clicks: u64,
    pending: Vec<(Family, String)>,
}

impl Default for Events {
    fn default() -> Self {
        Self { start_ms: START_MS, clicks: 0, pending: Vec::new() }
    }
}

impl Events {
    /// Events of which the last one of `total` is a minute old.
    pub fn until_now(total: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let lasts = Duration::from_millis(total as u64 * STEP_MS) + Duration::from_secs(60);
        let start = now.checked_sub(lasts).expect("the events are after 1970");
        Self { start_ms: start.as_millis() as u64, ..Self::default() }
    }

    fn time_ms(&self, number: u64) -> u64 {
        self.start_ms + number * STEP_MS
    }
}

impl Iterator for Events {
    /// The family and JSON of an event.
    type Item = (Family, String);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.pending.pop() {
            return Some(event);
        }
        self.clicks += 1;
        if self.clicks.is_multiple_of(100) {
            let device = self.clicks - 50;
            for effect in (0..3).rev() {
                let time_ms = self.time_ms(device + 60 + effect);
                self.pending.push((Family::Effect, effect_of(device, effect, time_ms)));
            }
            let time_ms = self.time_ms(device + 50);
            self.pending.push((Family::Activation, activation_of(device, time_ms)));
        }
        Some((Family::Touch, click_of(self.clicks, self.time_ms(self.clicks))))
    }
}

/// Returns a generated device id, different for every number.
pub fn oaid(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (mixed >> 32, mixed & 0xffff_ffff);
    format!("{a:08x}-{:04x}-4{:03x}-8{:03x}-{b:08x}{:04x}", b >> 16, a & 0xfff, b & 0xfff, a >> 16)
}

fn device(number: u64) -> String {
    format!(
        r#""ip":"203.0.{}.{}","ua":"Mozilla/5.0 (Linux; Android 14; V{}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.6478.122 Mobile Safari/537.36","device_model":"V{}","os":"android","os_version":"14""#,
        number >> 8 & 0xff,
        number & 0xff,
        number % 97,
        number % 97,
    )
}

fn click_of(number: u64, time_ms: u64) -> String {
    format!(
        r#"{{"type":"click","app":"{APP_KEY}","click_id":"c-{:032x}","spreadid":7,"time":{},"purpose":"ua","ids":{{"oaid":"{}"}},{},"site":"site-network-{}","params":{{"sub1":"creative-{}"}}}}"#,
        u128::from(number) << 64 | u128::from(number.wrapping_mul(0xd6e8_feb8_6659_fd93)),
        time_ms,
        oaid(number),
        device(number),
        number % 1000,
        number % 50,
    )
}

fn activation_of(number: u64, time_ms: u64) -> String {
    format!(
        r#"{{"type":"activation","app":"{APP_KEY}","event_id":"a-{number}","time":{},"ids":{{"oaid":"{}"}},{},"app_version":"1.2"}}"#,
        time_ms,
        oaid(number),
        device(number),
    )
}

fn effect_of(number: u64, effect: u64, time_ms: u64) -> String {
    format!(
        r#"{{"type":"effect","app":"{APP_KEY}","event_id":"e-{number}-{effect}","name":"purchase","time":{},"ids":{{"oaid":"{}"}},{},"app_version":"1.2","revenue":"9.99","currency":"CNY","props":{{"level":"{effect}"}}}}"#,
        time_ms,
        oaid(number),
        device(number),
    )
}

/// Returns the name and version of an adtrail binary.
pub fn version_of(binary: &Path) -> String {
    let version = run_ok(command(binary).arg("--version"), b"");
    String::from_utf8(version).expect("valid UTF-8").trim_end().to_owned()
}

/// Checks whether all events are read and committed to the store.
pub fn has_read_all(adtrail: &Adtrail, total: usize) -> bool {
    let holds = |name, condition: &dyn Fn(f64) -> bool| adtrail.metric(name).is_some_and(condition);
    holds("adtrail_ingest_read_total", &|read| read >= total as f64)
        && holds("adtrail_ingest_lag_messages", &|lag| lag == 0.0)
}

/// Waits until the process uses almost no CPU, because its compactions are completed.
pub fn wait_until_idle(adtrail: &Adtrail) {
    loop {
        let before = cpu_seconds(adtrail.pid());
        sleep(Duration::from_secs(2));
        if cpu_seconds(adtrail.pid()) - before < 0.2 {
            return;
        }
    }
}

/// Returns the CPU-seconds of a process so far, user and system.
pub fn cpu_seconds(pid: u32) -> f64 {
    let fields = stat(pid);
    fields[OWN_TIMES].iter().sum::<f64>() / TICKS_PER_SECOND
}

/// Returns the CPU-seconds so far of a process and all its descendants, also of those that have ended.
pub fn tree_cpu_seconds(root: u32) -> f64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let processes: Vec<(u32, [f64; 15])> = pids.map(|pid| (pid, stat(pid))).collect();
    let mut tree = vec![root];
    let mut visited = 0;
    while let Some(&parent) = tree.get(visited) {
        let is_child = |stat: &[f64; 15]| stat[PARENT] == f64::from(parent);
        tree.extend(processes.iter().filter(|(_, stat)| is_child(stat)).map(|(pid, _)| *pid));
        visited += 1;
    }
    let of_tree = processes.iter().filter(|(pid, _)| tree.contains(pid));
    of_tree.flat_map(|(_, stat)| &stat[OWN_AND_ENDED_TIMES]).sum::<f64>() / TICKS_PER_SECOND
}

/// Fields of `/proc/PID/stat` after the name: the parent, and user and system time.
const PARENT: usize = 1;
const OWN_TIMES: Range<usize> = 11..13;
/// Also the times of children that have ended, and theirs.
const OWN_AND_ENDED_TIMES: Range<usize> = 11..15;
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the first fields of `/proc/PID/stat` after the name; 0 for what is not a number or missing.
fn stat(pid: u32) -> [f64; 15] {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the bracket may contain spaces.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let mut words = after_name.split_whitespace();
    std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0))
}

/// Returns the current and peak resident memory of a process, in MiB.
pub fn memory_mib(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
            / 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Returns the number in an environment variable, or `default` if it is not set.
pub fn count(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
