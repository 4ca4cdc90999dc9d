//! By HBase's own client, in a JVM.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::own::ROWS_PER_ANSWER;
use super::support::hbase::HBase;
use super::support::maven;
use super::{Taken, Turn, VALUE_BYTES, What, cpu_s};

const POM: &str = include_str!("pom.xml");
const LOG: &str = include_str!("log4j.properties");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/throughput/Throughput.java");

pub struct Java {
    /// With the flags that a JVM of HBase wants.
    conf: PathBuf,
    jars: PathBuf,
    servers: String,
}

impl Java {
    pub fn new(hbase: &HBase) -> Self {
        let conf = hbase.dir().join("conf");
        fs::write(conf.join("bench.properties"), LOG).expect("a file");
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

    /// The time of its slowest client, as it tells; and CPU without what the JVM takes for one row.
    pub fn performance_evaluation(&self, turn: Turn<'_>) -> Taken {
        let start = self.evaluate(Turn { rows: turn.tasks, ..turn });
        let all = self.evaluate(turn);
        Taken { seconds: all.seconds, cpu_s: all.cpu_s - start.cpu_s }
    }

    fn evaluate(&self, turn: Turn<'_>) -> Taken {
        let mut command = self.command();
        command
            .arg("org.apache.hadoop.hbase.PerformanceEvaluation")
            .arg(
                "-Dhbase.client.registry.impl=org.apache.hadoop.hbase.client.RpcConnectionRegistry",
            )
            .arg(format!("-Dhbase.client.bootstrap.servers={}", self.servers))
            .args(["--nomapred", "--oneCon=true"])
            .arg(format!("--table={}", turn.table))
            .arg(format!("--rows={}", turn.rows / turn.tasks))
            .arg(format!("--valueSize={VALUE_BYTES}"))
            .arg(format!("--caching={ROWS_PER_ANSWER}"))
            .arg(match turn.what {
                What::Write => "randomWrite",
                What::Scan => "scan",
            })
            .arg(turn.tasks.to_string());
        let before = cpu_s().1;
        let told = run(&mut command);
        let cpu_s = cpu_s().1 - before;
        // `[ScanTest] Summary of timings (ms): [8123, 8077]`
        let times = told.lines().find_map(|line| line.split_once("Summary of timings (ms): ["));
        let (_, times) = times.unwrap_or_else(|| panic!("no times in:\n{told}"));
        let times = times.trim_end_matches(']').split(", ").map(|text| text.parse::<u64>());
        let slowest = times.map(|time| time.expect("milliseconds")).max().expect("a client");
        Taken { seconds: slowest as f64 / 1e3, cpu_s }
    }

    /// The second of two rounds in one JVM, with nothing but HBase's client.
    pub fn plain(&self, turn: Turn<'_>) -> Taken {
        let mut command = self.command();
        command.args([PROGRAM, &self.servers, turn.table, turn.what.name()]);
        command.args([turn.rows.to_string(), turn.tasks.to_string()]);
        let told = run(&mut command);
        let last = told.lines().last().unwrap_or_default();
        let (seconds, cpu_s) =
            last.split_once(' ').unwrap_or_else(|| panic!("no times in:\n{told}"));
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no number in:\n{told}"));
        Taken { seconds: number(seconds), cpu_s: number(cpu_s) }
    }
}

/// What it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("java is installed");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {told}{stderr}", output.status);
    told
}
