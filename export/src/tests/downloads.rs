//! Downloads to their last byte: checksum, compression, and how they are interrupted.

use std::io::Read;
use std::process::Command;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use listener::LongResponse;
use serde_json::{Value, json};

use super::fixture::{self, Answer, Bed, EVENTS, many_activations};
use super::{bed, check_headers, check_problem};
use crate::http::hosts::Hosts;
use crate::http::router::router;
use crate::http::state::SCANS_MAX;

/// Returns what a command writes for this input.
fn output(command: &str, option: &str, input: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, input).unwrap();
    let input = std::fs::File::open(file.path()).unwrap();
    Command::new(command).arg(option).stdin(input).output().unwrap().stdout
}

/// The checksum that `sha256sum` prints.
fn sha256(bytes: &[u8]) -> String {
    let line = String::from_utf8(output("sha256sum", "--binary", bytes)).unwrap();
    line.split(' ').next().unwrap().into()
}

/// While the service stops, downloads may take longer than other answers.
#[test]
fn the_server_can_tell_downloads_from_other_answers() {
    let bed = bed();
    let service = TowerToHyperService::new(router(bed.state.clone(), Hosts::any()));
    let days = "from=2026-03-10&to=2026-03-10";
    for (path, expected) in [
        ("/v1/apps/app-x/events.csv", true),
        ("/v1/apps/app-x/events.ndjson", true),
        ("/api/raw-data/export/app/app-x/installs_report/v5", true),
        ("/v1/apps/app-x/events.xlsx", false),
        ("/v1/apps/app-x/summary", false),
        ("/v1/apps/app-x/summary.csv", false),
        ("/", false),
        ("/openapi.json", false),
    ] {
        let request = Request::get(format!("{path}?{days}")).header("accept-encoding", "gzip");
        let answer = service.call(request.body(Body::empty()).unwrap());
        let answer = bed.runtime.block_on(answer).unwrap();
        assert_eq!(answer.extensions().get::<LongResponse>().is_some(), expected, "{path}");
    }
}

#[test]
fn a_download_has_a_checksum() {
    let bed = Bed::new(many_activations(30_000));
    let answer = bed.send_with(&format!("GET {EVENTS} HTTP/1.1"), &["TE: trailers"]);
    let sum = sha256(&answer.body);
    let expected = [("adtrail-rows", "30000"), ("adtrail-sha256", &*sum)];
    assert_eq!(answer.trailers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let id = answer.header("adtrail-export-id").unwrap();
    let export = bed.get(&format!("/v1/exports/{id}")).json();
    let file = "app-x_2026-03-10_2026-03-10_UTC.csv";
    for (name, value) in [
        ("id", json!(id)),
        ("app", json!("app-x")),
        ("request", json!(EVENTS)),
        ("file", json!(file)),
        ("state", json!("complete")),
        ("rows", json!(30_000)),
        ("bytes", json!(answer.body.len())),
        ("sha256", json!(sum)),
    ] {
        assert_eq!(export[name], value, "{name}");
    }
    assert!(export["started"].as_str() <= export["ended"].as_str(), "{export}");

    // Clients that do not accept trailers get none.
    let plain = bed.get(EVENTS);
    assert!(plain.is_ended && plain.trailers.is_empty() && plain.body == answer.body);
    for unknown in ["0", "", "x", &id.to_uppercase(), "18446744073709551616"] {
        let answer = bed.get(&format!("/v1/exports/{unknown}"));
        assert_eq!(answer.status, 404, "{unknown}");
    }
}

#[test]
fn the_state_of_a_download_is_kept() {
    let bed = Bed::new(many_activations(60_000));
    let mut gone = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
    let mut head = [0; 4096];
    gone.read_exact(&mut head).unwrap();
    let id = Answer::parse(&head).header("adtrail-export-id").unwrap().to_owned();
    let export = || bed.get(&format!("/v1/exports/{id}")).json();
    assert_eq!(export()["state"], "running");
    drop(gone);
    let export = loop {
        let export = export();
        if export["state"] != "running" {
            break export;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((&export["state"], &export["sha256"]), (&json!("aborted"), &Value::Null));
    assert!(export["rows"].as_u64().unwrap() < 60_000 && export["ended"].is_string(), "{export}");
}

#[test]
fn a_download_that_its_client_leaves_frees_everything() {
    let bed = Bed::new(many_activations(60_000));
    for _ in 0..5 {
        let mut gone = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
        gone.read_exact(&mut [0; 4096]).unwrap();
    }
    // A permit is free once the scan, all its threads and the body have ended.
    while bed.state.scans.available_permits() < SCANS_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    // So is the slot.
    assert!(bed.get(EVENTS).is_ended);
}

/// Their chunks wait, and they give their slots to others meanwhile.
#[test]
fn downloads_that_nobody_reads_do_not_stop_others() {
    let bed = Bed::new(many_activations(60_000));
    let unread: Vec<_> = (0..8).map(|_| bed.open(&format!("GET {EVENTS} HTTP/1.1"))).collect();
    let answer = bed.get(EVENTS);
    assert!(answer.is_ended);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 60_001);
    drop(unread);
}

#[test]
fn downloads_are_compressed_on_request() {
    let bed = Bed::new(many_activations(30_000));
    let plain = bed.get(EVENTS);
    check_headers(&plain, &[("content-encoding", None), ("vary", Some("accept-encoding"))]);
    for encoding in ["gzip", "zstd"] {
        let header = format!("Accept-Encoding: {encoding}");
        let answer = bed.send_with(&format!("GET {EVENTS} HTTP/1.1"), &[&header, "TE: trailers"]);
        check_headers(&answer, &[("content-encoding", Some(encoding))]);
        assert!(answer.is_ended && answer.body.len() * 4 < plain.body.len());
        // Each encoding is named like its program.
        assert!(output(encoding, "-d", &answer.body) == plain.body, "{encoding}");
        let sum = ("adtrail-sha256".to_owned(), sha256(&plain.body));
        assert!(
            answer.trailers.contains(&sum),
            "the checksum is of the uncompressed file: {:?}",
            answer.trailers
        );
    }
}

/// Writes zeros over a page in the middle of every file of the engine's tables.
fn damage(store: &std::path::Path) {
    use std::os::unix::fs::FileExt;
    let mut damaged = 0;
    for entry in std::fs::read_dir(store).unwrap() {
        let path = entry.unwrap().path();
        let bytes = path.metadata().unwrap().len();
        if path.extension().is_some_and(|extension| extension == "sst") && bytes > 100_000 {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 4096], bytes / 2).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no SST file was large enough to damage");
}

#[test]
fn a_damaged_store_aborts_the_download() {
    let dir = tempfile::tempdir().unwrap();
    let config = fixture::settings(dir.path());
    drop(fixture::fill(&config, many_activations(30_000)));
    // Opening a store flushes its log into SST files.
    drop(fixture::fill(&config, vec![]));
    damage(&config.store.path);
    let reader = fixture::fill(&config, vec![]);
    let bed = Bed::over(dir, config, reader);

    let answer = bed.get(EVENTS);
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > 1 << 20, "the download did not begin: {}", answer.body.len());
    assert!(!answer.is_ended);
    // The first line is written by the thread that scans, the second one when the body ends.
    let lines = bed.log.take();
    for message in ["an export failed", "an export has ended"] {
        let line = lines.iter().find(|line| line["message"] == message).expect(message);
        let id = line["span"]["request_id"].as_str();
        assert_eq!(id, answer.header("x-request-id"), "{line}");
    }
    let id = answer.header("adtrail-export-id").unwrap();
    let export = bed.get(&format!("/v1/exports/{id}")).json();
    assert_eq!((&export["state"], &export["sha256"]), (&json!("failed"), &Value::Null));
    // The client has at most what was passed on; the last chunks may have been in transit.
    let lines = answer.body.iter().filter(|byte| **byte == b'\n').count() as u64;
    let rows = export["rows"].as_u64().unwrap();
    assert!(lines <= rows + 1 && rows < 30_000, "{lines} lines: {export}");
    // A request for damaged rows fails at once, without naming the file.
    let late = bed.get("/v1/apps/app-x/events.csv?from=2026-03-10T04:10&to=2026-03-10T04:12");
    check_problem(&late, 500, "store", None);
    assert!(!late.text().contains("sst"), "{}", late.text());
}

#[test]
fn downloads_over_the_limit_get_retry_after() {
    let bed = bed();
    let all = bed.state.scans.clone().try_acquire_many_owned(SCANS_MAX as u32).unwrap();
    let answer = bed.get(EVENTS);
    check_problem(&answer, 503, "busy", None);
    check_headers(&answer, &[("retry-after", Some("10"))]);
    assert_eq!(bed.send(&format!("HEAD {EVENTS} HTTP/1.1")).status, 200);
    drop(all);
    assert_eq!(bed.get(EVENTS).status, 200);
}

#[test]
fn downloads_in_progress_complete_during_shutdown() {
    let mut bed = Bed::new(many_activations(60_000));
    let mut download = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
    let mut bytes = vec![0; 1];
    download.read_exact(&mut bytes).unwrap();
    bed.stop();
    download.read_to_end(&mut bytes).unwrap();
    let answer = Answer::parse(&bytes);
    assert!(answer.is_ended);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 60_001);
    bed.join();
    assert!(std::net::TcpStream::connect(bed.address).is_err());
}
