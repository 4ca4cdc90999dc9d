//! Measures HBase's own client, in a JVM.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::own::ROWS_PER_RESPONSE;
use super::support::hbase::HBase;
use super::support::maven;
use super::{Cost, Measurement, VALUE_BYTES, Workload, cpu_s};

const POM: &str = include_str!("pom.xml");
const LOG: &str = include_str!("log4j.properties");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/throughput/Throughput.java");

pub struct Java {
    /// The configuration folder, which has the flags of the JVM.
    conf: PathBuf,
    jars: PathBuf,
    servers: String,
}

impl Java {
    pub fn new(hbase: &HBase) -> Self {
        let conf = hbase.dir().join("conf");
        fs::write(conf.join("bench.properties"), LOG).expect("the file is written");
        let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
        let jars = maven::resolve("hbase-bench", POM, &goal);
        Self { conf, jars, servers: hbase.servers().join(",") }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("java");
        command
            .arg(format!("@{}", self.conf.join("jvm.flags").display()))
            .arg(format!("-Dlog4j.configuration=file:{}/bench.properties", self.conf.display()))
            .args(["-Xmx1g", "-cp"])
            .arg(format!("{}/*", self.jars.display()));
        command
    }

    /// Runs `PerformanceEvaluation`. Returns the time of its slowest client, and its CPU time minus that of a run with
    /// one row per task.
    pub fn performance_evaluation(&self, measurement: Measurement<'_>) -> Cost {
        let start = self.evaluate(Measurement { rows: measurement.tasks, ..measurement });
        let all = self.evaluate(measurement);
        Cost { seconds: all.seconds, cpu_s: all.cpu_s - start.cpu_s }
    }

    fn evaluate(&self, measurement: Measurement<'_>) -> Cost {
        let mut command = self.command();
        command
            .arg("org.apache.hadoop.hbase.PerformanceEvaluation")
            .arg(
                "-Dhbase.client.registry.impl=org.apache.hadoop.hbase.client.RpcConnectionRegistry",
            )
            .arg(format!("-Dhbase.client.bootstrap.servers={}", self.servers))
            .args(["--nomapred", "--oneCon=true"])
            .arg(format!("--table={}", measurement.table))
            .arg(format!("--rows={}", measurement.rows / measurement.tasks))
            .arg(format!("--valueSize={VALUE_BYTES}"))
            .arg(format!("--caching={ROWS_PER_RESPONSE}"))
            .arg(match measurement.workload {
                Workload::Write => "randomWrite",
                Workload::Scan => "scan",
            })
            .arg(measurement.tasks.to_string());
        let before = cpu_s().1;
        let output = execute(&mut command);
        let cpu_s = cpu_s().1 - before;
        // `[ScanTest] Summary of timings (ms): [8123, 8077]`
        let times = output.lines().find_map(|line| line.split_once("Summary of timings (ms): ["));
        let (_, times) = times.unwrap_or_else(|| panic!("no times in:\n{output}"));
        let times = times.trim_end_matches(']').split(", ").map(|text| text.parse::<u64>());
        let slowest = times
            .map(|time| time.expect("each time is in milliseconds"))
            .max()
            .expect("there is a time per client");
        Cost { seconds: slowest as f64 / 1e3, cpu_s }
    }

    /// Runs a plain loop over HBase's client twice in one JVM, and returns the second round.
    pub fn plain(&self, measurement: Measurement<'_>) -> Cost {
        let mut command = self.command();
        command.args([PROGRAM, &self.servers, measurement.table, measurement.workload.name()]);
        command.args([measurement.rows.to_string(), measurement.tasks.to_string()]);
        let output = execute(&mut command);
        let last = output.lines().last().unwrap_or_default();
        let (seconds, cpu_s) =
            last.split_once(' ').unwrap_or_else(|| panic!("no times in:\n{output}"));
        let number =
            |text: &str| text.parse().unwrap_or_else(|_| panic!("no number in:\n{output}"));
        Cost { seconds: number(seconds), cpu_s: number(cpu_s) }
    }
}

/// Runs a command and returns its output.
fn execute(command: &mut Command) -> String {
    let output = command.output().expect("java is installed");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stdout}{stderr}", output.status);
    stdout
}
