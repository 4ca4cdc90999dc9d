//! One export, read by common CSV readers: each reads the values that were sent.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{cache_dir, run_ok};

/// Texts that readers and spreadsheets may misinterpret.
const HOSTILE: &[&str] = &[
    "plain",
    "a,b;c|d",
    "say \"hi\"",
    "\"",
    "two\nlines",
    "two\r\nlines",
    " spaces ",
    "=1+1",
    ";=1+1",
    "a|=1+1",
    "1\n=1+1",
    "=HYPERLINK(\"http://example.com\",\"x\")",
    "+49 30 1",
    "-2",
    "@SUM(A1)",
    "00123",
    "12345678901234567890",
    "1e10",
    "1-2",
    "MAR-3",
    "TRUE",
    "\u{202e}txet",
    "\u{5e7f}\u{544a}",
    "NA",
    "'quoted",
    "1\u{a0}234",
    "1\u{202f}234",
    "\u{a0}12",
    "12 ",
    "1:30 PM",
    "5 am",
    "10:00AM",
    "1/2/26 5:30 PM",
    "3:00\u{4e0b}\u{5348}",
    "True ",
    " TRUE",
    "Wahr",
    "FALSCH",
    "vrai",
    "\u{771f}",
    "5\u{a0}%",
    "1\u{a0}e5",
    "e-17",
    "1,5",
    "1.234,5",
    "\u{ff12}\u{ff10}\u{ff12}\u{ff16}",
    "\u{661}\u{662}\u{663}",
    "3\u{6708}10\u{65e5}",
    "\u{ff13}\u{6708}10\u{65e5}",
    "\u{4e8c}\u{3007}\u{4e8c}\u{516d}",
    "\u{20ac}5",
    "5 \u{20ac}",
    "\u{a5}5",
    "$5",
    "5 USD",
    "5 kr",
    "1.2.2026",
    "Mai 1",
    "10. September 2026 12:30:00",
    "Donnerstag, 10. September 2026",
    "10 septembre 2026",
    "2026-03-10T12:00:00",
    "6.1\"",
    " =1+1",
    "#N/A",
    "android 14",
    "clk_17",
    "1\n2",
    "10\r\nSep 2026",
    "TRUE\n",
    "9c6d1b84-2f6e-4a7b-8c1d-0e9f8a7b6c5d",
    "Mozilla/5.0 (Linux; Android 14; SM-G991B) AppleWebKit/537.36",
];

fn event(number: usize, text: &str) -> Message {
    let time = 1_773_100_800_000_u64 + number as u64 * 60_001;
    let event = json!({
        "type": "activation", "app": "app-x", "event_id": format!("{number}{text}"), "time": time,
        "ids": {"oaid": format!("{number:08x}-1111-4222-8333-444444444444")},
        "ua": text, "device_model": text, "os_version": text, "app_version": text,
        "props": {text: text, "level": number.to_string()},
    });
    Message::new("app-x", event.to_string())
}

fn purchase(number: usize, text: &str) -> Message {
    let time = 1_773_187_200_000_u64 + number as u64 * 60_001;
    let event = json!({
        "type": "effect", "app": "app-x", "event_id": format!("e{number}"), "name": text,
        "time": time, "ids": {"oaid": format!("{number:08x}-1111-4222-8333-444444444444")},
        "revenue": "1234.50", "currency": "CNY",
    });
    Message::new("app-x", event.to_string())
}

fn save(site: &Site, file: &Path, more: &[&str]) {
    let range = ["--app", "app-x", "--from", "2026-03-01", "--to", "2026-03-31"];
    let zone =
        ["--timezone", "Asia/Shanghai", "--out", file.to_str().expect("the path is valid UTF-8")];
    let args = [&["download"][..], &range, &zone, more].concat();
    run_ok(&mut site.command(&args), b"");
}

#[test]
fn every_reader_reads_the_values_that_were_sent() {
    let kafka = Kafka::shared();
    let site =
        Site::new(kafka, "readers", 1, ONE_CAMPAIGN).set("attribution.correction_horizon", "off");
    let texts = || HOSTILE.iter().copied().enumerate();
    kafka.produce(&site.topics.activations, texts().map(|(number, text)| event(number, text)));
    kafka.produce(&site.topics.effects, texts().map(|(number, text)| purchase(number, text)));
    let adtrail = site.start();
    adtrail.await_read(2 * HOSTILE.len() as u64);
    adtrail.await_caught_up();
    adtrail.stop();

    let folder = site.path();
    save(&site, &folder.join("rows.csv"), &[]);
    save(&site, &folder.join("rows.ndjson"), &["--format", "ndjson"]);
    save(&site, &folder.join("excel.csv"), &["--dialect", "excel"]);
    let compare =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integrations/readers/compare.py");
    let printed =
        run_ok(Command::new(cache_dir().join("python/bin/python")).arg(compare).arg(folder), b"");
    assert_eq!(
        String::from_utf8_lossy(&printed),
        format!("{} rows of 50 columns\n", 2 * HOSTILE.len())
    );
    assert!(
        fs::read(folder.join("excel.csv"))
            .expect("the file is readable")
            .starts_with(b"\xef\xbb\xbf")
    );
}
