//! The dashboards of deploy/grafana and the rules of deploy/alerts.yml, on a real Prometheus that scrapes a service with
//! all of its parts in use. Grafana itself is not run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testbed::adtrail::Adtrail;
use testbed::http;
use testbed::kafka::Kafka;
use testbed::prometheus::Prometheus;
use testbed::site::Site;
use testbed::traffic::{self, FROM, TO};
use testbed::{eventually, free_port};

use super::monitoring::await_scrape;
use crate::network::Network;

/// A query of a dashboard.
struct Query {
    /// The file and the title of the panel.
    origin: [String; 2],
    expression: String,
    /// Some queries have no data while all is well.
    may_be_empty: bool,
}

impl Query {
    /// Replaces the variables as Grafana does. Here Prometheus scrapes every second.
    fn new(file: &str, title: &str, expression: &str) -> Self {
        let variables = [("$instance", ".+"), ("$__rate_interval", "1m")];
        let expression = variables
            .into_iter()
            .fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
        assert!(!expression.contains('$'), "{file}: {title}: unknown variable in {expression}");
        let origin = [file, title].map(str::to_owned);
        Self { origin, expression, may_be_empty: false }
    }
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the dashboards with their file names, in order.
fn dashboards() -> Vec<(String, Value)> {
    let files = fs::read_dir(root("deploy/grafana/dashboards")).expect("the folder exists");
    let mut dashboards: Vec<_> = files
        .map(|file| {
            let path = file.expect("the folder can be read").path();
            let text = fs::read(&path).expect("the file can be read");
            let dashboard = serde_json::from_slice(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, dashboard)
        })
        .collect();
    dashboards.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(dashboards.len() >= 6, "{}", dashboards.len());
    dashboards
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[track_caller]
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key} in {value}"))
}

/// Returns all queries: of panels, of variables and of annotations.
fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for (file, dashboard) in &dashboards() {
        let panels = list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row");
        for panel in panels {
            let targets = list(&panel["targets"]);
            assert!(!targets.is_empty(), "{file}: a panel without a query: {panel}");
            let of_panel = targets.iter().map(|target| text(target, "expr"));
            queries.extend(of_panel.map(|query| Query::new(file, text(panel, "title"), query)));
        }
        for variable in list(&dashboard["templating"]["list"]) {
            let Some(values) = variable["query"]["query"].as_str() else { continue };
            let arguments = values.strip_prefix("label_values(").and_then(|v| v.strip_suffix(')'));
            let (metric, label) = arguments.and_then(|v| v.split_once(", ")).expect(values);
            let expression = format!("count by ({label}) ({metric}{{{label}!=\"\"}})");
            queries.push(Query::new(file, text(variable, "name"), &expression));
        }
        for annotation in list(&dashboard["annotations"]["list"]) {
            let query = Query::new(file, text(annotation, "name"), text(annotation, "expr"));
            queries.push(Query { may_be_empty: true, ..query });
        }
    }
    queries
}

fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// `… or vector(0)` has data even if its metric does not exist.
#[test]
fn dashboards_name_existing_metrics() {
    let listed = fs::read_to_string(root("tests/commands/surface.txt")).expect("it exists");
    let listed: BTreeSet<&str> = listed.lines().collect();
    for Query { origin, expression, .. } in queries() {
        for name in words(&expression).filter(|word| word.starts_with("adtrail_")) {
            let suffixes = ["_bucket", "_count", "_sum"];
            let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let is_listed = listed.contains(name) || base.is_some_and(|base| listed.contains(base));
            assert!(is_listed, "{origin:?}: no metric is called {name}");
        }
    }
}

#[test]
fn each_metric_has_a_panel() {
    let listed = fs::read_to_string(root("tests/commands/surface.txt")).expect("it exists");
    let metrics = listed.lines().filter(|line| line.starts_with("adtrail_"));
    let queries = queries();
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| words(&query.expression)).collect();
    let is_used = |name: &str| {
        let suffixes = ["", "_bucket", "_count", "_sum"];
        suffixes.iter().any(|suffix| used.contains(&*format!("{name}{suffix}")))
    };
    let without: Vec<_> = metrics.filter(|&name| !is_used(name)).collect();
    assert!(without.is_empty(), "metrics without a panel: {without:?}");
}

#[test]
fn panels_are_described_and_do_not_overlap() {
    for (file, dashboard) in &dashboards() {
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&dashboard["panels"]) {
            let title = text(panel, "title");
            assert!(ids.insert(panel["id"].as_u64()), "{file}: {title}: its id is in use");
            let size = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect(key));
            let [x, y, width, height] = size;
            assert!(x + width <= 24, "{file}: {title} is beyond the 24 columns");
            let mut of_panel = (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y)));
            assert!(of_panel.all(|cell| cells.insert(cell)), "{title}");
            if panel["type"] != "row" {
                assert!(!text(panel, "description").is_empty(), "{file}: {title}");
                assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {title}");
                assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{file}: {title}");
            }
        }
    }
}

/// A service with a collector, callbacks, tokens, a spool and a registry that does not answer.
struct Fixture {
    site: Site,
    network: Network,
    collector: String,
    read_token: String,
    write_token: String,
}

fn fixture() -> Fixture {
    let (port, network) = (free_port(), Network::start());
    let channel = "[[channels]]\nid = \"toutiao\"\n";
    let signature = "[channels.signature]\nscheme = \"hmac_sha256\"\nmode = \"report\"\n\
                     keys = [{ secret = \"key-1\" }]\n";
    let settings = traffic::SETTINGS.replacen(channel, &format!("{channel}{signature}"), 1);
    assert!(settings.contains(signature));
    let settings = format!(
        "{settings}[registry]\nurls = [\"http://127.0.0.1:{}\"]\n\
         [collect]\nlisten = \"127.0.0.1:{port}\"\npublic_url = \"https://click.example.com\"\n\
         [callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n\
         [[callbacks.endpoint]]\nname = \"hook\"\npreset = \"webhook\"\nurl = \"{}\"\n\
         credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n",
        free_port(),
        network.url("/hook")
    );
    let mut site =
        Site::new(Kafka::shared(), "dashboards", 2, &settings).set("collect.spool", "spool");
    let (write_token, write_entry) = site.new_token(&["--write", "--app", "app-x"]);
    let (read_token, read_entry) = site.new_token(&["--all-apps"]);
    site.change(&format!("{settings}{write_entry}\n{read_entry}"));
    let collector = format!("127.0.0.1:{port}");
    network.answer("/hook", 200, "");
    Fixture { site, network, collector, read_token, write_token }
}

impl Fixture {
    /// Uses each part once. `round` makes the events unique.
    fn use_all(&self, adtrail: &Adtrail, round: u64) {
        let records = traffic::redelivered(&traffic::records(round, 300), round);
        traffic::produce(&self.site.topics, &records);
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let device = format!("1fe9a970-efbb-29e0-0bdd-{round:012x}");
        let click = format!(
            "/click/app-x/toutiao?spreadid=1&click_id=dash-{round}&time={}&oaid={device}&idfa={{idfa}}",
            now_ms - 60_000
        );
        let click = http::get(&self.collector, &click).expect("the collector responds");
        assert_eq!(click.status, 200, "{click:?}");
        let event = |id: &str, more: &str| {
            format!(
                r#"{{"event_id":"{id}-{round}","time":{now_ms},"ids":{{"oaid":"{device}"}}{more}}}"#
            )
        };
        let invalid = event("e", "");
        let purchase = event("p", r#","name":"purchase","revenue":"9.90","currency":"CNY""#);
        let bodies = [
            ("/activation/app-x", event("a", "")),
            ("/effect/app-x", format!("{purchase}\n{invalid}")),
        ];
        let token = format!("Bearer {}", self.write_token);
        for (path, body) in &bodies {
            let headers = [("Authorization", &*token)];
            let reply = http::send("POST", &self.collector, path, &headers, body.as_bytes());
            assert_eq!(reply.expect("the collector responds").status, 200, "{path}");
        }
        let (path, body) = &bodies[0];
        let refused = http::send("POST", &self.collector, path, &[], body.as_bytes());
        assert_eq!(refused.expect("the collector responds").status, 401);
        let export = format!("/v1/apps/app-x/events.csv?from={FROM}&to={TO}");
        let token = format!("Bearer {}", self.read_token);
        let headers = [("Authorization", &*token)];
        for (headers, status) in [(&headers[..], 200), (&headers[..0], 401)] {
            let reply = http::request("GET", &adtrail.export, &export, headers);
            assert_eq!(reply.expect("adtrail responds").status, status);
        }
    }
}

/// The service is used until each query has data. Prints all of them with their results.
#[test]
fn every_query_of_the_dashboards_returns_data() {
    let fixture = fixture();
    let adtrail = fixture.site.start();
    fixture.use_all(&adtrail, 1);
    adtrail.await_caught_up();
    fixture.network.await_requests("/hook", 1);
    // The next process has the events in table files, so that look-ups read blocks and check filters.
    adtrail.stop();
    let adtrail = fixture.site.start();
    let rules = fs::read_to_string(root("deploy/alerts.yml")).expect("it exists");
    let prometheus = Prometheus::start_with(&[&adtrail.admin], "adtrail", &rules);
    let mut round = 1;
    let mut use_again = || {
        round += 1;
        fixture.use_all(&adtrail, round);
        await_scrape(&prometheus);
    };
    (0..3).for_each(|_| use_again());
    for Query { origin, expression, may_be_empty } in queries() {
        let [file, title] = &origin;
        let values = eventually(&format!("{file}: {title}: {expression}"), || {
            let values = prometheus.query(&expression);
            let has_data = !values.is_empty() && !values.iter().any(|value| value.is_nan());
            if has_data || may_be_empty {
                return Ok(values);
            }
            use_again();
            Err(format!("{values:?}"))
        });
        let first = values.first().map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
        println!("{file:<17} {title:<44} {:>3} series, the first {first:>16}", values.len());
    }
    check_rules(&prometheus);
}

/// Checks that all rules are evaluated without an error.
#[track_caller]
fn check_rules(prometheus: &Prometheus) {
    let shipped = fs::read_to_string(root("deploy/alerts.yml")).expect("it exists");
    let expected = shipped.matches("\n        expr: ").count();
    let rules = eventually("the rules are evaluated", || {
        let response = prometheus.api("/api/v1/rules");
        let groups = list(&response["groups"]).iter();
        let rules: Vec<Value> = groups.flat_map(|group| list(&group["rules"]).to_vec()).collect();
        let is_pending = rules.iter().any(|rule| rule["health"] == "unknown");
        if rules.is_empty() || is_pending { Err(response.to_string()) } else { Ok(rules) }
    });
    assert_eq!(rules.len(), expected);
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        println!("rule              {:<44} {}", text(&rule, "name"), text(&rule, "health"));
    }
}
