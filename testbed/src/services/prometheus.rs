//! A real Prometheus that scrapes what a test runs, and promtool.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::child_guard::ChildGuard;
use super::shared::note_start;
use crate::{eventually, free_port, http, run, run_ok};

#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    /// Also removes the directory.
    _running: ChildGuard,
}

impl Prometheus {
    /// Scrapes these addresses, such as `127.0.0.1:8081`, and itself every second.
    pub fn start(targets: &[&str]) -> Self {
        Self::start_with(targets, "test", "groups: []")
    }

    /// Like [`Prometheus::start`], with a job name, and with alerting rules that are evaluated every second.
    pub fn start_with(targets: &[&str], job: &str, rules: &str) -> Self {
        let port = free_port();
        let dir =
            TempDir::with_prefix("adtrail-prometheus-").expect("the directory is created").keep();
        let address = format!("127.0.0.1:{port}");
        let targets: Vec<String> = targets
            .iter()
            .chain([&address.as_str()])
            .map(|target| format!("\"{target}\""))
            .collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\nscrape_configs:\n  - job_name: {job}\n    static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        fs::write(dir.join("rules.yml"), rules).expect("the file is written");
        fs::write(dir.join("prometheus.yml"), config).expect("the file is written");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let started = Instant::now();
        let running = ChildGuard::spawn(&dir, &command);
        eventually("prometheus is ready", || match http::get(&address, "/-/ready") {
            Ok(reply) if reply.status == 200 => Ok(()),
            _ => Err(fs::read_to_string(dir.join("log")).unwrap_or_default()),
        });
        note_start("prometheus", started);
        Self { port, _running: running }
    }

    /// Returns the values of an instant query, as printed by promtool; empty if no series matches.
    pub fn query(&self, expression: &str) -> Vec<f64> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let response =
            run_ok(Command::new("promtool").args(["query", "instant", &url, expression]), b"");
        String::from_utf8_lossy(&response)
            .lines()
            .filter(|line| !line.is_empty())
            .map(parse_value)
            .collect()
    }

    /// Returns the data of a response of the HTTP API, such as that of `/api/v1/rules`.
    pub fn api(&self, path: &str) -> Value {
        let address = format!("127.0.0.1:{}", self.port);
        let reply = http::get(&address, path).expect("Prometheus responds");
        let mut response: Value = serde_json::from_slice(&reply.body).expect("valid JSON");
        response["data"].take()
    }

    /// Returns the names of the firing alerts.
    pub fn firing(&self) -> BTreeSet<String> {
        let response = self.api("/api/v1/alerts");
        let alerts = response["alerts"].as_array().expect("the response has alerts").iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing
            .map(|alert| {
                alert["labels"]["alertname"].as_str().expect("the alert has a name").into()
            })
            .collect()
    }

    /// Waits until an expression has exactly one value, and returns it. An empty result is not accepted, because
    /// promtool does not report unknown names.
    #[track_caller]
    pub fn value(&self, expression: &str) -> f64 {
        eventually(expression, || match self.query(expression)[..] {
            [value] => Ok(value),
            ref values => Err(format!("expected one value, got {values:?}")),
        })
    }
}

/// Parses a line such as `up{job="a"} => 1 @[1700000000.123]` or `scalar: 1 @[1700000000.123]`.
fn parse_value(line: &str) -> f64 {
    let sample = line.rsplit_once(" @[").map(|(sample, _)| sample);
    let value = sample.and_then(|sample| sample.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("not a sample: {line}"))
}

/// Returns the complaints of `promtool check metrics` about a scrape, empty if there are none.
pub fn check_metrics(scrape: &str) -> String {
    assert!(!scrape.trim().is_empty(), "the scrape is empty");
    let output = run(Command::new("promtool").args(["check", "metrics"]), scrape.as_bytes());
    let report = [output.stdout, output.stderr].concat();
    let report = String::from_utf8_lossy(&report).into_owned();
    assert!(output.status.success() || !report.is_empty(), "promtool: {}", output.status);
    report
}
