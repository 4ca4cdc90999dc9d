//! Downloads by curl from a store that fails midway: a truncated export never looks complete.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testbed::disk::damage_tables;
use testbed::kafka::{Kafka, Message};
use testbed::run;
use testbed::site::{ONE_CAMPAIGN, Site};

/// 2026-03-10T00:00:00Z.
const DAY: u64 = 1_773_100_800_000;
const ROWS: u64 = 20_000;
/// A range before the first damaged row.
const WHOLE: &str = "from=2026-03-10T00:00&to=2026-03-10T00:01";
const ALL: &str = "from=2026-03-10&to=2026-03-10";

/// The output of curl, and the headers and the undecoded body that it received.
struct Received {
    output: Output,
    headers: String,
    body: Vec<u8>,
}

fn curl(address: &str, dir: &Path, encoding: &str) -> Received {
    let [headers, first, body] = ["headers", "first", "body"].map(|name| dir.join(name));
    let mut command = Command::new("curl");
    command
        .args(["--verbose", "--no-progress-meter", "--http1.1", "-H", "TE: trailers", "-D"])
        .arg(&headers);
    command.args(["-H", &format!("Accept-Encoding: {encoding}")]);
    let url = |range: &str| format!("http://{address}/v1/apps/app-x/events.csv?{range}");
    // The first response is complete; the second comes over the same connection.
    command.args(["-o"]).arg(first).arg(url(WHOLE)).arg("-o").arg(&body).arg(url(ALL));
    let output = run(&mut command, b"");
    Received {
        output,
        headers: fs::read_to_string(headers).unwrap(),
        body: fs::read(body).unwrap_or_default(),
    }
}

/// Decompresses a truncated body with the encoding's program, which must fail.
fn unpacked(encoding: &str, body: &[u8]) -> Vec<u8> {
    match encoding {
        "identity" => body.to_vec(),
        program => {
            let output = run(Command::new(program).args(["-d", "-c"]), body);
            assert!(!output.status.success(), "{program} accepts a truncated body");
            output.stdout
        }
    }
}

#[test]
fn curl_exits_with_18_if_the_store_fails_midway() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "truncated", 1, ONE_CAMPAIGN);
    let message = |n: u64| {
        // Random text hardly compresses, so the store's files are large.
        let text: String = (0..40).map(|_| fastrand::alphanumeric()).collect();
        let event = json!({
            "app": "app-x", "event_id": format!("a-{n}-{text}"), "time": DAY + 1_000 * n,
            "ids": {"oaid": format!("{n:08x}-1111-4222-8333-444444444444")}, "props": {"text": text},
        });
        Message::new("app-x", event.to_string()).at(DAY as i64)
    };
    kafka.produce(&site.topics.activations, (0..ROWS).map(message));
    let adtrail = site.start();
    adtrail.await_read(ROWS);
    adtrail.stop();
    // Opening the store flushes the WAL into table files.
    site.start().stop();
    damage_tables(&site.path().join("store"), 500_000);
    let adtrail = site.start();
    for encoding in ["identity", "gzip", "zstd"] {
        let received = curl(&adtrail.export, site.path(), encoding);
        let stderr = String::from_utf8_lossy(&received.output.stderr);
        assert_eq!(received.output.status.code(), Some(18), "{encoding}: {stderr}");
        assert!(stderr.contains("Re-using existing connection"), "{encoding}: {stderr}");
        let (first, second) =
            received.headers.split_at(received.headers.rfind("HTTP/1.1 ").unwrap());
        assert!(second.starts_with("HTTP/1.1 200"), "{second}");
        let (first, second) = (first.to_lowercase(), second.to_lowercase());
        assert_eq!(second.contains("content-encoding: "), encoding != "identity", "{second}");
        for trailer in ["\nadtrail-rows: ", "\nadtrail-sha256: "] {
            assert!(first.contains(trailer) && !second.contains(trailer), "{encoding}: {second}");
        }
        let id = second.split_once("adtrail-export-id: ").unwrap().1.lines().next().unwrap();
        let export = adtrail.get(&format!("/v1/exports/{id}")).unwrap().text();
        let export: Value = serde_json::from_str(&export).unwrap();
        assert_eq!((&export["state"], &export["sha256"]), (&json!("failed"), &Value::Null));
        let rows = export["rows"].as_u64().unwrap();
        assert!((1..ROWS).contains(&rows), "{export}");
        // The body is a prefix of the bytes sent, because the last bytes may not have arrived.
        let body = unpacked(encoding, &received.body);
        let lines = body.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert!(lines > 1 && lines <= rows + 1, "{encoding}: {lines} of {rows}");
        if encoding == "identity" {
            let bytes = export["bytes"].as_u64().unwrap();
            assert!(body.len() as u64 <= bytes, "{} of {bytes}", body.len());
        }
    }
}
