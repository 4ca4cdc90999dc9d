//! `adtrail replay-dlq`: each dead letter is sent exactly once, even if the command is interrupted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Output, Stdio};

use testbed::exports::check_same;
use testbed::kafka::{Kafka, Message, Record};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site, Topics};
use testbed::{Captured, check_exit, eventually, kill, rows, run_ok};

/// A campaign of [`SECOND_APP`], which is configured only later.
const OTHER_CAMPAIGN: &str = "[[campaigns]]\nspreadid = 8\npid = 2\nchannel = \"toutiao\"\n";

fn site(name: &str, partitions: i32) -> Site {
    let site = Site::new(Kafka::shared(), name, partitions, ONE_CAMPAIGN);
    site.set("attribution.correction_horizon", "off")
}

/// Returns a click, the activation that is credited to it, and an effect, of one app.
fn journey(app: &str, spreadid: u32, number: usize) -> [String; 3] {
    let time = 1_741_608_000_000_u64 + number as u64 * 1000;
    let common = format!(r#""app":"{app}","ids":{{"oaid":"{app}-{number}"}}"#);
    [
        format!(
            r#"{{"type":"click",{common},"click_id":"c-{number}","spreadid":{spreadid},"time":{time}}}"#
        ),
        format!(
            r#"{{"type":"activation",{common},"event_id":"a-{number}","time":{}}}"#,
            time + 100
        ),
        format!(
            r#"{{"type":"effect",{common},"event_id":"e-{number}","name":"buy","time":{}}}"#,
            time + 200
        ),
    ]
}

/// Returns the lines of the table, by code and topic.
#[track_caller]
fn counts(output: &Output) -> BTreeMap<String, rows::Row> {
    check_exit(output, 0, &[]);
    let rows = rows::parse(&output.stdout).into_iter();
    rows.map(|row| (format!("{} {}", row["code"], row["topic"]), row)).collect()
}

/// Returns one column of a table with one line.
#[track_caller]
fn count(output: &Output, column: &str) -> String {
    let counts = counts(output);
    assert_eq!(counts.len(), 1, "{counts:?}");
    counts.into_values().next().unwrap()[column].clone()
}

#[test]
fn replayed_letters_give_the_export_of_valid_records() {
    let kafka = Kafka::shared();
    let mut site = site("resend.whole", 2);
    let (mut events, mut messages) = (String::new(), Vec::new());
    for number in 0..40 {
        for (app, spreadid) in [("app-x", 7), ("app-y", 8)] {
            let lines = journey(app, spreadid, number);
            for (topic, line) in site.topics.all().into_iter().zip(&lines) {
                let headers = vec![("trace".into(), b"\x00\xff".to_vec())];
                messages.push((topic, Message { headers, ..Message::new(app, line.as_str()) }));
                events.push_str(line);
                events.push('\n');
            }
        }
    }
    // A record in each topic that stays invalid.
    messages.extend(site.topics.all().map(|topic| (topic, Message::new("app-x", "[1]"))));
    kafka.produce_all(messages);
    let adtrail = site.start();
    adtrail.await_read(243);
    assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(123.0));
    adtrail.stop();

    site.change(&format!("{ONE_CAMPAIGN}{SECOND_APP}{OTHER_CAMPAIGN}"));
    let adtrail = site.start();
    let Topics { clicks, activations, effects } = &site.topics;
    let dlq = |topic: &str| format!("{topic}.dlq");
    for topic in [clicks, activations, effects] {
        let dry = site.run(&["replay-dlq", &dlq(topic), "--dry-run", "--filter", "unknown_app"]);
        assert_eq!(counts(&dry)[&format!("unknown_app {topic}")]["would_send"], "40");
        assert_eq!(counts(&dry)[&format!("not_an_object {topic}")]["filtered"], "1");
        assert_eq!(kafka.consume_all(topic).len(), 81);
        let sent = site.run(&["replay-dlq", &dlq(topic), "--filter", "unknown_app"]);
        assert_eq!(counts(&sent)[&format!("unknown_app {topic}")]["sent"], "40");
        let again = site.run(&["replay-dlq", &dlq(topic), "--filter", "unknown_app"]);
        assert_eq!(counts(&again)[&format!("unknown_app {topic}")]["sent_before"], "40");
        check_sent(&kafka.consume_all(topic));
    }
    adtrail.await_read(120);
    for app in ["app-x", "app-y"] {
        let expected = site.replay(app, events.as_bytes());
        let found = site.download(app, "2025-03-10", "2025-03-10", &[]);
        assert_eq!(rows::parse(&expected).len(), 80);
        check_same(app, &found, &expected);
    }

    // A record that is still invalid becomes a new dead letter, which may be sent again.
    let sent = site.run(&["replay-dlq", &dlq(effects)]);
    assert_eq!(counts(&sent)[&format!("not_an_object {effects}")]["sent"], "1");
    adtrail.await_read(121);
    let sent = site.run(&["replay-dlq", &dlq(effects), "--dry-run"]);
    let line = &counts(&sent)[&format!("not_an_object {effects}")];
    assert_eq!([&*line["would_send"], &*line["sent_before"]], ["1", "1"]);
    let log = adtrail.log();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
}

/// Checks that every record of app-y exists twice with equal headers, and all others once.
#[track_caller]
fn check_sent(records: &[Record]) {
    let mut seen: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for Record { key, value, headers, .. } in records {
        seen.entry((key, value)).or_default().push(headers);
    }
    assert_eq!(seen.len(), 81);
    for ((key, _), headers) in seen {
        let times = if key.as_deref() == Some(b"app-y") { 2 } else { 1 };
        assert_eq!(headers.len(), times);
        assert!(headers.iter().all(|other| *other == headers[0]), "{headers:?}");
    }
}

/// Returns a dead letter of a record at this offset of the source topic.
fn letter(source: &str, offset: usize, code: &str, value: &str) -> Message {
    let header = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    Message {
        headers: vec![
            header("adtrail.error.code", "the record's own"),
            header("__connect.errors.topic", source),
            header("__connect.errors.partition", "0"),
            header("__connect.errors.offset", &offset.to_string()),
            header("__connect.errors.stage", "VALUE_CONVERTER"),
            header("__connect.errors.exception.class.name", &format!("adtrail.{code}")),
            header("__connect.errors.exception.message", "no good"),
            header("adtrail.error.code", code),
        ],
        ..Message::new(format!("key-{}", offset % 7), value)
    }
}

/// Creates a site with dead letters of clicks, whose values are their numbers.
fn site_with_letters(name: &str, count: usize) -> Site {
    let site = site(name, 3);
    let clicks = &site.topics.clicks;
    let letters = (0..count).map(|number| letter(clicks, number, "bad_value", &number.to_string()));
    Kafka::shared().produce(&format!("{clicks}.dlq"), letters);
    site
}

/// Checks that each dead letter was sent exactly once.
#[track_caller]
fn check_each_once(site: &Site, count: usize) {
    let mut sent: Vec<usize> = Kafka::shared()
        .consume_all(&site.topics.clicks)
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap()).parse().unwrap())
        .collect();
    sent.sort_unstable();
    assert_eq!(sent.len(), count);
    assert!(sent.iter().enumerate().all(|(index, number)| index == *number));
}

/// Starts a run in the background. Returns it and its standard error.
fn spawn(site: &Site) -> (Child, Captured) {
    let dlq = format!("{}.dlq", site.topics.clicks);
    let mut command = site.command(&["replay-dlq", &dlq]);
    let stderr = Captured::empty();
    let child = command.stdout(Stdio::null()).stderr(stderr.sink()).spawn().unwrap();
    (child, stderr)
}

/// Waits until the run has written up to an offset, or has ended. Returns whether it is still running.
fn await_written(site: &Site, child: &mut Child, stderr: &Captured, offsets: i64) -> bool {
    eventually("letters are written", || {
        if child.try_wait().unwrap().is_some() {
            return Ok(false);
        }
        match Kafka::shared().written(&site.topics.clicks) {
            written if written >= offsets => Ok(true),
            written => Err(format!("{written} of {offsets}: {}", stderr.text())),
        }
    })
}

const MANY: usize = 20_000;

#[test]
fn a_killed_run_is_completed_by_the_next() {
    let mut killed = 0;
    // A run that ends before it is killed, as on a fast machine, tests nothing: try again.
    for attempt in 0..5 {
        let site = site_with_letters(&format!("resend.killed{attempt}"), MANY);
        for _ in 0..4 {
            let before = Kafka::shared().written(&site.topics.clicks);
            let (mut child, stderr) = spawn(&site);
            let is_running = await_written(&site, &mut child, &stderr, before + 1);
            child.kill().unwrap();
            child.wait().unwrap();
            killed += usize::from(is_running);
        }
        let before = Kafka::shared().consume_all(&site.topics.clicks).len();
        let dlq = format!("{}.dlq", site.topics.clicks);
        let output = site.run(&["replay-dlq", &dlq]);
        assert_eq!(count(&output, "sent_before"), before.to_string());
        assert_eq!(count(&output, "sent"), (MANY - before).to_string());
        check_each_once(&site, MANY);
        if killed >= 4 {
            return;
        }
    }
    panic!("only {killed} runs were still running when they were killed");
}

#[test]
fn a_second_run_takes_over_from_the_first() {
    for attempt in 0..5 {
        let site = site_with_letters(&format!("resend.twice{attempt}"), MANY);
        let (mut first, stderr) = spawn(&site);
        if !await_written(&site, &mut first, &stderr, 1) {
            continue;
        }
        kill(first.id(), "STOP");
        let before = Kafka::shared().consume_all(&site.topics.clicks).len();
        let dlq = format!("{}.dlq", site.topics.clicks);
        let second = site.run(&["replay-dlq", &dlq]);
        assert_eq!(count(&second, "letters"), MANY.to_string());
        kill(first.id(), "CONT");
        let status = first.wait().unwrap();
        check_each_once(&site, MANY);
        if before < MANY {
            let stderr = stderr.text();
            assert_eq!(status.code(), Some(1), "{stderr}");
            assert!(stderr.contains("another replay of this topic has taken over"), "{stderr}");
            return;
        }
    }
    panic!("the first run always ended before it was stopped");
}

#[test]
fn only_letters_with_a_selected_code_are_sent() {
    let kafka = Kafka::shared();
    let site = site("resend.codes", 1);
    let Topics { clicks, effects, .. } = &site.topics;
    let dlq = format!("{clicks}.dlq");
    let mut letters = vec![
        letter(clicks, 0, "bad_value", "0"),
        letter(clicks, 1, "unknown_app", "1"),
        // The same record twice, as after a crash of the service.
        letter(clicks, 0, "bad_value", "0"),
        letter(effects, 0, "of_a_later_version", "2"),
        letter("other.topic", 0, "bad_value", "3"),
        letter(clicks, 2, "Not a code", "4"),
        Message::new("k", "5"),
        Message {
            key: None,
            value: Some(b"\x00\xff".to_vec()),
            ..letter(clicks, 3, "bad_time", "")
        },
        // At the same offset of a recreated topic.
        letter(clicks, 1, "unknown_app", "6"),
    ];
    letters[5].headers[3].1 = b"first".to_vec();
    kafka.produce(&dlq, letters);
    // The name of this header is not UTF-8.
    let mut kcat = Command::new("kcat");
    kcat.args(["-P", "-b", &kafka.brokers(), "-t", &dlq, "-H"]).arg(OsStr::from_bytes(b"\xff=1"));
    run_ok(&mut kcat, b"strange\n");

    let check = |output: &Output, code: &str, topic: &str, expected: [&str; 5]| {
        let row = counts(output)[&format!("{code} {topic}")].clone();
        let sent = row.get("sent").unwrap_or_else(|| &row["would_send"]);
        let rest = ["sent_before", "repeated", "filtered", "left"].map(|column| &*row[column]);
        assert_eq!([&**sent, rest[0], rest[1], rest[2], rest[3]], expected, "{code} {topic}");
    };
    let dry = site.run(&["replay-dlq", &dlq, "--dry-run"]);
    check(&dry, "bad_value", clicks, ["1", "0", "1", "0", "0"]);
    check(&dry, "", "", ["0", "0", "0", "0", "4"]);
    assert!(kafka.consume_all(clicks).is_empty());
    let reasons = ["lacks the headers of a dead letter", "not configured", "not UTF-8", "offset=4"];
    let stderr = check_exit(&dry, 0, &reasons);
    assert!(!stderr.contains("panicked"), "{stderr}");

    let first = site.run(&["replay-dlq", &dlq, "--filter", "bad_time", "--filter", "unknown_app"]);
    check(&first, "bad_value", clicks, ["0", "0", "0", "2", "0"]);
    check(&first, "bad_time", clicks, ["1", "0", "0", "0", "0"]);
    check(&first, "unknown_app", clicks, ["2", "0", "0", "0", "0"]);
    let second = site.run(&["replay-dlq", &dlq, "--filter", "bad_value"]);
    check(&second, "bad_value", clicks, ["1", "0", "1", "0", "0"]);
    check(&second, "unknown_app", clicks, ["0", "2", "0", "0", "0"]);
    let third = site.run(&["replay-dlq", &dlq]);
    check(&third, "bad_value", clicks, ["0", "2", "0", "0", "0"]);
    check(&third, "of_a_later_version", effects, ["1", "0", "0", "0", "0"]);
    check(&third, "", "", ["0", "0", "0", "0", "4"]);

    let sent = kafka.consume_all(clicks);
    let values: Vec<_> = sent.iter().map(|record| record.value.as_deref().unwrap()).collect();
    assert_eq!(values, [&b"1"[..], b"\x00\xff", b"6", b"0"]);
    assert_eq!(sent[1].key, None);
    for record in &sent {
        let own = ("adtrail.error.code".to_owned(), b"the record's own".to_vec());
        assert_eq!(record.headers, [own]);
    }
    assert_eq!(kafka.consume_all(effects).len(), 1);
}

#[test]
fn unusable_topics_and_rejected_letters_are_reported() {
    let kafka = Kafka::shared();
    let site = site_with_letters("resend.refused", 3);
    let clicks = &site.topics.clicks;
    let dlq = format!("{clicks}.dlq");
    let check = |args: &[&str], code: i32, parts: &[&str]| {
        check_exit(&site.run(&[&["replay-dlq"], args].concat()), code, parts);
    };
    check(&[], 2, &["TOPIC"]);
    check(&[clicks], 2, &["dead letters", &dlq]);
    check(&[&dlq, "--filter", "bad_values"], 2, &["--filter", "bad_value,", "\"bad_values\""]);
    check(&["no.such.dlq"], 1, &["the topic does not exist", "no.such.dlq"]);

    // The transaction is larger than the topic's limit, and so is one record by itself.
    kafka.set_topic(clicks, &[("max.message.bytes", "2000")]);
    let letters = (3..20).map(|number| {
        let value = "x".repeat(if number == 5 { 5000 } else { 500 });
        Message { partition: Some(0), ..letter(clicks, number, "bad_value", &value) }
    });
    kafka.produce(&dlq, letters);
    check(&[&dlq], 1, &["max.message.bytes", "dead letters: 1"]);
    assert_eq!(kafka.consume_all(clicks).len(), 19);
    kafka.set_topic(clicks, &[("max.message.bytes", "20000")]);
    check(&[&dlq], 0, &[]);
    assert_eq!(kafka.consume_all(clicks).len(), 20);

    // A journal topic that deletes old records is rejected.
    let other = site_with_letters("resend.forgets", 1);
    let dlq = format!("{}.dlq", other.topics.clicks);
    kafka.create_topic(&format!("{dlq}.replayed"), 1, &[("cleanup.policy", "delete")]);
    check_exit(&other.run(&["replay-dlq", &dlq]), 1, &["cleanup.policy=compact"]);
}
