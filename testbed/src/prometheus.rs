//! A real Prometheus that scrapes what a test runs, and promtool's judgement.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::shared::note_start;
use super::{eventually, free_port, http, run, run_ok};
use crate::child_guard::Leash;

#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    /// Also removes the folder.
    _running: Leash,
}

impl Prometheus {
    /// Scrapes the addresses, `127.0.0.1:8081`, and itself, every second.
    pub fn start(targets: &[&str]) -> Self {
        Self::start_with(targets, "test", "groups: []")
    }

    /// As [`Prometheus::start`], under a job's name, and with rules that are looked at as often.
    pub fn start_with(targets: &[&str], job: &str, rules: &str) -> Self {
        let port = free_port();
        let dir = TempDir::with_prefix("adtrail-prometheus-").expect("a temporary folder").keep();
        let own = format!("127.0.0.1:{port}");
        let targets: Vec<String> =
            targets.iter().chain([&own.as_str()]).map(|target| format!("\"{target}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\nscrape_configs:\n  - job_name: {job}\n    static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        fs::write(dir.join("rules.yml"), rules).expect("a file");
        fs::write(dir.join("prometheus.yml"), config).expect("a file");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={own}"));
        let started = Instant::now();
        let running = Leash::hold(&dir, &command);
        eventually("prometheus is ready", || match http::get(&own, "/-/ready") {
            Ok(reply) if reply.status == 200 => Ok(()),
            _ => Err(fs::read_to_string(dir.join("log")).unwrap_or_default()),
        });
        note_start("prometheus", started);
        Self { port, _running: running }
    }

    /// The values of an instant query, as promtool tells them; empty where the name is unknown.
    pub fn query(&self, expression: &str) -> Vec<f64> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let answer =
            run_ok(Command::new("promtool").args(["query", "instant", &url, expression]), b"");
        String::from_utf8_lossy(&answer)
            .lines()
            .filter(|line| !line.is_empty())
            .map(parse_value)
            .collect()
    }

    /// The names of the alerts that ring.
    pub fn ringing(&self) -> BTreeSet<String> {
        let address = format!("127.0.0.1:{}", self.port);
        let reply = http::get(&address, "/api/v1/alerts").expect("prometheus answers");
        let answer: Value = serde_json::from_slice(&reply.body).expect("an answer in JSON");
        let alerts = answer["data"]["alerts"].as_array().expect("alerts").iter();
        let ringing = alerts.filter(|alert| alert["state"] == "firing");
        ringing.map(|alert| alert["labels"]["alertname"].as_str().expect("a name").into()).collect()
    }

    /// The one value of an expression, waited for until Prometheus has scraped it: an answer
    /// without one is no answer, for promtool takes a wrong name without a word.
    #[track_caller]
    pub fn value(&self, expression: &str) -> f64 {
        eventually(expression, || match self.query(expression)[..] {
            [value] => Ok(value),
            ref values => Err(format!("one value was expected, not {values:?}")),
        })
    }
}

/// Of a line such as `up{job="a"} => 1 @[1700000000.123]` or `scalar: 1 @[1700000000.123]`.
fn parse_value(line: &str) -> f64 {
    let sample = line.rsplit_once(" @[").map(|(sample, _)| sample);
    let value = sample.and_then(|sample| sample.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("not a sample: {line}"))
}

/// What `promtool check metrics` finds wrong with a scrape: nothing, if all is well.
pub fn check_metrics(scrape: &str) -> String {
    assert!(!scrape.trim().is_empty(), "an empty scrape proves nothing");
    let output = run(Command::new("promtool").args(["check", "metrics"]), scrape.as_bytes());
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success() || !said.is_empty(), "promtool: {}", output.status);
    said
}
