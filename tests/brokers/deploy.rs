//! The deployment files are consistent: their paths and ports match, the image starts, and a real Kafka starts with the
//! broker's settings. The containers themselves are not run.
//!
//! The tests read the files line by line; `docker compose config` and promtool check whether they are valid YAML.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use testbed::adtrail::{adtrail, binary};
use testbed::kafka::{Kafka, Message};
use testbed::run_ok;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the settings that are mounted into the container.
fn config() -> toml::Table {
    read("config/compose.toml").parse().unwrap()
}

fn text<'a>(config: &'a toml::Table, section: &str, key: &str) -> &'a str {
    let value = config.get(section).and_then(|section| section.get(key));
    value.and_then(|value| value.as_str()).unwrap_or_else(|| panic!("no {section}.{key}"))
}

/// Returns the values of `key: value` lines, at any depth.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).collect()
}

/// Returns the `- FROM:TO` lines of the compose file, without `:ro`.
fn mounts(compose: &str) -> Vec<(&str, &str)> {
    let items = compose.lines().filter_map(|line| line.trim().strip_prefix("- "));
    items.filter_map(|item| item.trim_end_matches(":ro").split_once(":/")).collect()
}

fn mounted_at<'a>(compose: &'a str, target: &str) -> &'a str {
    let found = mounts(compose).into_iter().find(|(_, to)| *to == target.trim_start_matches('/'));
    found.unwrap_or_else(|| panic!("nothing is mounted at {target}")).0
}

#[test]
fn mounted_files_exist() {
    let compose = read("docker-compose.yml");
    let volumes = compose.split_once("\nvolumes:\n").unwrap().1;
    let mounts = mounts(&compose);
    assert_eq!(mounts.len(), 9, "{mounts:?}");
    for (from, to) in mounts {
        match from.strip_prefix("./") {
            Some(path) => assert!(root().join(path).exists(), "{path} is mounted at /{to}"),
            None => assert!(volumes.contains(&format!("  {from}:")), "{from} is not a volume"),
        }
    }
    assert_eq!(mounted_at(&compose, "/etc/prometheus/prometheus.yml"), "./deploy/prometheus.yml");
    let prometheus = read("deploy/prometheus.yml");
    let rules = prometheus.lines().skip_while(|line| *line != "rule_files:").nth(1).unwrap();
    let rules = rules.trim().strip_prefix("- ").unwrap();
    assert_eq!(
        mounted_at(&compose, &format!("/etc/prometheus/{rules}")),
        format!("./deploy/{rules}")
    );
    let dashboards = read("deploy/grafana/provisioning/dashboards/adtrail.yml");
    let [folder] = values(&dashboards, "path")[..] else { panic!("{dashboards}") };
    assert_eq!(mounted_at(&compose, folder), "./deploy/grafana/dashboards");
    assert_eq!(mounted_at(&compose, "/etc/grafana/provisioning"), "./deploy/grafana/provisioning");
}

#[test]
fn the_image_uses_the_mounted_settings_and_the_volume() {
    let (compose, dockerfile) = (read("docker-compose.yml"), read("Dockerfile"));
    let command = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = strings(command);
    assert_eq!(command[..2], ["run", "--config"]);
    assert_eq!(mounted_at(&compose, &command[2]), "./config/compose.toml");
    let health_check = format!("CMD [\"adtrail\", \"health\", \"--config\", \"{}\"]\n", command[2]);
    assert!(dockerfile.contains(&health_check), "not in Dockerfile: {health_check}");

    let volume = dockerfile.lines().find_map(|line| line.strip_prefix("VOLUME ")).unwrap();
    let workdir = dockerfile.lines().rfind(|line| line.starts_with("WORKDIR ")).unwrap();
    assert_eq!(mounted_at(&compose, volume), "adtrail-data");
    let config = config();
    let store =
        Path::new(workdir.trim_start_matches("WORKDIR ")).join(text(&config, "store", "path"));
    assert!(store.starts_with(volume), "{} is lost with the container", store.display());
}

/// Returns the strings of a one-line list, `["a", "b"]`.
fn strings(list: &str) -> Vec<String> {
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn ports_match_the_settings() {
    let (compose, config) = (read("docker-compose.yml"), config());
    let brokers = text(&config, "kafka", "brokers");
    assert_eq!(values(&compose, "KAFKA_ADVERTISED_LISTENERS"), [format!("PLAINTEXT://{brokers}")]);
    assert!(compose.contains(&format!("--bootstrap-server {brokers} ")));

    let [export, admin] = ["export", "admin"].map(|section| text(&config, section, "listen"));
    assert!(read("deploy/prometheus.yml").contains(&format!("targets: [\"{admin}\"]")));
    let ports = [export, admin].map(|address| address.rsplit_once(':').unwrap().1).join(" ");
    assert!(read("Dockerfile").contains(&format!("\nEXPOSE {ports}\n")), "not exposed: {ports}");

    // All listeners use the host's network without a password, so they may only listen on the loopback interface.
    for listen in [brokers, export, admin] {
        assert!(listen.starts_with("127.0.0.1:"), "{listen}");
    }
    for listeners in values(&compose, "KAFKA_LISTENERS") {
        assert!(
            listeners.split(',').all(|listener| listener.contains("://127.0.0.1:")),
            "{listeners}"
        );
    }
    assert_eq!(values(&compose, "GF_SERVER_HTTP_ADDR"), ["127.0.0.1"]);
    let source = read("deploy/grafana/provisioning/datasources/prometheus.yml");
    let [prometheus] = values(&source, "url")[..] else { panic!("{source}") };
    let prometheus = prometheus.strip_prefix("http://").unwrap();
    assert!(prometheus.starts_with("127.0.0.1:"), "{prometheus}");
    assert!(compose.contains(&format!("--web.listen-address={prometheus}\n")), "{prometheus}");
}

#[test]
fn created_topics_match_the_settings() {
    let (compose, config) = (read("docker-compose.yml"), config());
    let list = compose.lines().find_map(|line| line.trim().strip_prefix("for topic in ")).unwrap();
    let created: BTreeSet<&str> = list.trim_end_matches("; do").split(' ').collect();
    let kafka = config["kafka"].as_table().unwrap();
    let topic = |key: &str| {
        let named = kafka.get(key).and_then(|value| value.as_str());
        named.map_or_else(|| format!("adtrail.{key}"), str::to_owned)
    };
    let expected = ["clicks", "activations", "effects"].map(topic);
    assert_eq!(created, expected.iter().map(String::as_str).collect());
}

/// Cargo reads the manifest of every member, even if the image does not need it.
#[test]
fn the_docker_context_has_every_workspace_member() {
    let (manifest, copied) = (read("Cargo.toml"), read(".dockerignore"));
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let members: Vec<_> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"store"), "{members:?}");
    for member in members {
        assert!(copied.lines().any(|line| line == format!("!{member}")), "{member}");
    }
}

#[test]
fn the_deployed_kafka_is_the_tested_version() {
    let compose = read("docker-compose.yml");
    let pom = read("testbed/src/services/kafka/pom.xml");
    let version = pom.split_once("<artifactId>kafka_2.13</artifactId>").unwrap().1;
    let version = version.split_once("<version>").unwrap().1.split_once('<').unwrap().0;
    let images = values(&compose, "image");
    let kafkas: Vec<_> = images.iter().filter(|image| image.contains("kafka")).collect();
    assert!(!kafkas.is_empty());
    let name = format!("apache/kafka:{version}@sha256:");
    assert!(kafkas.iter().all(|image| image.starts_with(&name)), "{kafkas:?}");
}

#[test]
fn every_container_is_hardened_and_every_foreign_image_has_a_digest() {
    let compose = read("docker-compose.yml");
    let (head, services) = compose.split_once("\nservices:\n").unwrap();
    let (services, _) = services.split_once("\nvolumes:\n").unwrap();
    for setting in
        ["read_only: true", "cap_drop: [ALL]", "security_opt: [\"no-new-privileges:true\"]"]
    {
        assert!(head.contains(&format!("\n  {setting}\n")), "{setting}");
    }
    // A service begins with its name, indented by two spaces.
    let is_name = |line: &&str| {
        line.starts_with("  ") && line.ends_with(':') && line.as_bytes()[2].is_ascii_alphabetic()
    };
    let names = services.lines().filter(is_name).count();
    assert_eq!(names, 5);
    assert_eq!(services.matches("\n    <<: *hardened\n").count(), names);
    assert_eq!(values(services, "mem_limit").len(), names);
    for image in values(services, "image") {
        let digest = image.split_once("@sha256:").map(|(_, digest)| digest);
        let is_digest =
            |text: &str| text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
        assert!(image == "adtrail" || digest.is_some_and(is_digest), "{image}");
    }
}

/// Executes the steps of `Dockerfile` on this machine's file system. `scripts/try-image` says what is real about that.
/// Needs root. Most of the time is spent on two stops without a broker.
#[test]
fn the_image_starts_without_privileges_on_a_read_only_root() {
    let scratch = tempfile::tempdir().unwrap();
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    trial.arg(root().join("scripts/try-image")).arg(root().join("Dockerfile"));
    run_ok(trial.arg(binary()).arg(scratch.path()), b"");
}

/// The image converts `KAFKA_SOME_SETTING` to `some.setting`.
#[test]
fn a_real_kafka_runs_on_the_settings_of_compose() {
    let compose = read("docker-compose.yml");
    let settings: Vec<(String, &str)> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("KAFKA_")?.split_once(": "))
        .map(|(name, value)| (name.to_lowercase().replace('_', "."), value.trim_matches('"')))
        .collect();
    let kafka = Kafka::start_with(|ports, dir| {
        let line = |(name, value): &(String, &str)| match name.as_str() {
            "log.dirs" => format!("{name}={}\n", dir.join("data").display()),
            _ => format!("{name}={value}\n")
                .replace(":9092", &format!(":{}", ports.broker))
                .replace(":9093", &format!(":{}", ports.controller)),
        };
        settings.iter().map(line).collect()
    });
    kafka.create_topic("deploy", 4, &[]);
    kafka.produce("deploy", [Message::new("app-x", "{}")]);
    assert_eq!(kafka.consume_all("deploy").len(), 1);
}

/// With the addresses that the chart sets in the environment.
#[test]
fn the_chart_passes_valid_settings() {
    let chart = "deploy/helm/adtrail";
    let (values, templates) = (format!("{chart}/ci/all-values.yaml"), format!("{chart}/templates"));
    let values = read(&values);
    let (_, config) = values.split_once("\nconfig: |\n").unwrap();
    let lines = config.lines().map_while(|line| line.strip_prefix("  "));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let mut command = adtrail();
    command.arg("check-config").arg("--config").arg(file.path());
    let mut settings = BTreeSet::new();
    for role in ["attribute", "export", "collect"] {
        let template = read(&format!("{templates}/{role}.yaml"));
        for listener in template.split("\"port\" ").skip(1) {
            let (port, rest) = listener.split_once(" \"setting\" \"").unwrap();
            let (setting, _) = rest.split_once('"').unwrap();
            command.env(setting, format!("0.0.0.0:{port}"));
            settings.insert(setting.to_owned());
        }
    }
    assert_eq!(settings.len(), 3, "{settings:?}");
    run_ok(&mut command, b"");
}

/// An alert on a metric that does not exist never fires, and promtool does not detect it.
#[test]
fn alerts_name_existing_metrics() {
    let alerts = read("deploy/alerts.yml");
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for alert in alerts.split("- alert: ").skip(1) {
        // The expression has one or more lines, up to the next key.
        let expression = alert.split_once("expr: ").unwrap().1;
        let expression = expression.split("\n        labels:").next().unwrap();
        let expression = expression.split("\n        for:").next().unwrap();
        let words = expression.split(|c| !is_name_char(c));
        let of_alert: Vec<_> = words.filter(|word| word.starts_with("adtrail_")).collect();
        assert!(!of_alert.is_empty() || alert.starts_with("AdtrailDown\n"), "no metric in {alert}");
        names.extend(of_alert);
    }
    let listed = read("tests/commands/surface.txt");
    for name in names {
        assert!(listed.lines().any(|line| line == name), "no metric is called {name}");
    }
}

/// GitHub and other renderers make the anchor from the heading, in lower case.
#[test]
fn each_alert_links_to_its_entry_of_the_runbook() {
    let (alerts, runbook) = (read("deploy/alerts.yml"), read("docs/runbook.md"));
    let names = values(&alerts, "- alert");
    assert_eq!(names.len(), values(&alerts, "expr").len());
    let links = values(&alerts, "runbook_url");
    let expected = names.iter().map(|name| format!("docs/runbook.md#{}", name.to_lowercase()));
    assert_eq!(links, expected.collect::<Vec<_>>());
    for name in names {
        let headings = runbook.lines().filter(|line| line.strip_prefix("### ") == Some(name));
        assert_eq!(headings.count(), 1, "entries of {name}");
    }
}
