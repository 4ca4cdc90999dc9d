//! Compares `/openapi.json` with the responses of a service: schemathesis generates valid and invalid requests from the
//! document and validates every response against it.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testbed::adtrail::Adtrail;
use testbed::http::{self, Reply};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site};
use testbed::{cache_dir, length, run};

const OTHER_CAMPAIGN: &str = r#"
[[channels]]
id = "a,b"
[[campaigns]]
spreadid = 8
pid = 1
channel = "a,b"
"#;

/// 2026-03-10T00:00:00Z.
const DAY: u64 = 1_773_100_800_000;

fn device(n: u64) -> String {
    format!("{n:08x}-1111-4222-8333-444444444444")
}

/// Produces a click, an install and a purchase for each of ten devices per app. Returns the number of events.
fn produce(kafka: &Kafka, site: &Site) -> u64 {
    let mut produced = 0;
    for app in ["app-x", "app-y"] {
        let message =
            |event: serde_json::Value| Message::new(app, event.to_string()).at(DAY as i64);
        let at = |n: u64, minute: u64| DAY + (10 * n + minute) * 60_000;
        let clicks = (0..10).map(|n| {
            message(json!({
                "app": app, "click_id": format!("c-{n}"), "spreadid": 7 + n % 2, "time": at(n, 0),
                "ids": {"oaid": device(n)}, "site": "s",
            }))
        });
        let activations = (0..10).map(|n| {
            message(json!({
                "app": app, "event_id": format!("a-{n}"), "time": at(n, 1), "ids": {"oaid": device(n)},
            }))
        });
        let effects = (0..10).map(|n| {
            message(json!({
                "app": app, "event_id": format!("e-{n}"), "name": "purchase", "time": at(n, 2),
                "ids": {"oaid": device(n)}, "revenue": "9.99", "currency": "CNY",
                "props": {"level": n.to_string()},
            }))
        });
        kafka.produce(&site.topics.clicks, clicks);
        kafka.produce(&site.topics.activations, activations);
        kafka.produce(&site.topics.effects, effects);
        produced += 30;
    }
    produced
}

/// A service with rows, and a token for both apps.
struct Served {
    adtrail: Adtrail,
    token: String,
    site: Site,
}

impl Served {
    fn start(name: &str) -> Self {
        let kafka = Kafka::shared();
        let settings = format!("{ONE_CAMPAIGN}name = \"Spring\"\n{SECOND_APP}{OTHER_CAMPAIGN}");
        let mut site = Site::new(kafka, name, 1, &settings);
        let (token, entry) = site.new_token(&["--all-apps"]);
        site.change(&format!("{settings}\n{entry}"));
        let produced = produce(kafka, &site);
        let adtrail = site.start();
        adtrail.await_read(produced);
        Self { adtrail, token, site }
    }

    fn get(&self, path: &str) -> Reply {
        let authorization = format!("Bearer {}", self.token);
        http::request("GET", &self.adtrail.export, path, &[("Authorization", &authorization)])
            .unwrap()
    }
}

/// `SCHEMATHESIS_EXAMPLES` is the number of examples per operation, `SCHEMATHESIS_SEED` the seed of their generator.
#[test]
fn every_response_matches_the_document() {
    let served = Served::start("openapi.schemathesis");
    let export = served.get("/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10");
    assert_eq!(export.text().lines().count(), 21);
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integrations/openapi");
    let mut command = Command::new(cache_dir().join("python/bin/st"));
    command
        .args(["run", &format!("http://{}/openapi.json", served.adtrail.export)])
        .args(["--header", &format!("Authorization: Bearer {}", served.token)])
        .args([
            "--phases",
            "examples,coverage,fuzzing,stateful",
            "--checks",
            "all",
            "--continue-on-failure",
        ])
        .args(["--max-examples", &variable("SCHEMATHESIS_EXAMPLES", length("10", "25"))])
        .args(["--seed", &variable("SCHEMATHESIS_SEED", "1")])
        .args(["--generation-database", "none", "--no-color"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", hooks)
        .env("EXPORT_ID", export.header("adtrail-export-id").unwrap())
        .current_dir(served.site.path());
    let output = run(&mut command, b"");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let cases =
        printed.lines().find_map(|line| line.trim().split_once(" generated, ")?.0.parse().ok());
    let cases_min: u32 = length(400, 1_000);
    assert!(cases.is_some_and(|cases: u32| cases > cases_min), "{printed}");
    let log = served.adtrail.stop();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
}
