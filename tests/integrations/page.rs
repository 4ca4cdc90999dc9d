//! The web page in a real browser: a script drives Debian's Chromium through the tasks of users.

use std::path::Path;
use std::process::Command;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use testbed::disk::damage_tables;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site};
use testbed::{cache_dir, free_port, http, length, run};

fn settings() -> String {
    format!("{ONE_CAMPAIGN}name = \"Spring\"\n{SECOND_APP}name = \"<b>Why</b>\"\n")
}

/// Settings of a collector on this port, with a link for people.
fn collect(port: u16) -> String {
    format!(
        "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n\
         [collect]\nlisten = \"127.0.0.1:{port}\"\npublic_url = \"https://click.example.com\"\n"
    )
}

/// Length of names and ids without a character at which a line can break.
const LONG_CHARS: usize = 200;
const LONG_ID_CHARS: usize = 1_000;

/// Days with events, up to yesterday.
const DAYS: i64 = 12;
/// Number of installs per day. Every other one has a click, and each has a purchase.
const INSTALLS: i64 = 6;

/// Runs the tasks in a browser.
#[track_caller]
fn drive(tasks: &[&str], facts: &Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integrations/page/drive.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(tasks.join(",")).arg(facts.to_string());
    command.env("PAGE_MODULES", cache_dir().join("page"));
    command.env("PAGE_LOOKS", length("some", "all"));
    let output = run(&mut command, b"");
    let done = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "after {:?}: {stderr}", done.lines().collect::<Vec<_>>());
    assert_eq!(done.lines().collect::<Vec<_>>(), tasks);
}

/// Returns the current date. A test that starts in the last minutes of a day waits for the next one: longer than it
/// takes, but shorter than a test may take.
fn today() -> Date {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let midnight = now.tomorrow().unwrap().start_of_day().unwrap();
    let seconds = midnight.timestamp().as_second() - now.timestamp().as_second();
    if seconds <= 5 * 60 {
        std::thread::sleep(std::time::Duration::from_secs(seconds.cast_unsigned()));
        return midnight.date();
    }
    now.date()
}

/// Returns noon of a day, in milliseconds. It is on the same date in all time zones of the tests.
fn noon(day: Date) -> i64 {
    let noon = day.at(12, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap();
    noon.timestamp().as_millisecond()
}

fn oaid(day: Date, number: i64) -> String {
    format!("{:08x}-1111-4222-8333-{number:012x}", noon(day) / 86_400_000)
}

fn produce(kafka: &Kafka, site: &Site, days: &[Date]) {
    let each = || days.iter().flat_map(|day| (0..INSTALLS).map(|number| (*day, number)));
    let message = |day: Date, event: Value| Message::new("app-x", event.to_string()).at(noon(day));
    let clicks = each().filter(|(_, number)| number % 2 == 0).map(|(day, number)| {
        let time = noon(day) - 60_000;
        let ids = json!({"oaid": oaid(day, number)});
        let id = format!("c-{day}-{number}");
        message(day, json!({"type": "click", "app": "app-x", "click_id": id, "spreadid": 7, "time": time, "ids": ids}))
    });
    kafka.produce(&site.topics.clicks, clicks);
    let installs = each().map(|(day, number)| {
        let time = noon(day) + number;
        let ids = json!({"oaid": oaid(day, number)});
        message(day, json!({"app": "app-x", "event_id": format!("a-{day}-{number}"), "time": time, "ids": ids}))
    });
    kafka.produce(&site.topics.activations, installs);
    let purchases = each().map(|(day, number)| {
        let time = noon(day) + 60_000 + number;
        let ids = json!({"oaid": oaid(day, number)});
        let props = json!({"<script>": "=1+1"});
        message(
            day,
            json!({"app": "app-x", "event_id": format!("e-{day}-{number}"), "name": "purchase",
            "time": time, "ids": ids, "revenue": "9.99", "currency": "CNY", "props": props}),
        )
    });
    kafka.produce(&site.topics.effects, purchases);
}

/// Returns facts about an app with very long names, and its settings.
fn long(day: Date) -> (Value, String) {
    let text = |letter: &str, chars| letter.repeat(chars);
    let [name, event] = ["n", "v"].map(|letter| text(letter, LONG_CHARS));
    let settings = format!(
        "[[apps]]\npid = 3\nkey = \"app-long\"\nname = \"{name}\"\n\
         [[channels]]\nid = \"{name}\"\n\
         [[campaigns]]\nspreadid = 8\npid = 3\nchannel = \"{name}\"\nname = \"{name}\"\n"
    );
    let facts = json!({
        "app": "app-long",
        "name": name,
        "event": event,
        "id": text("i", LONG_ID_CHARS),
        "device": oaid(day, 99),
        "day": day.to_string(),
    });
    (facts, settings)
}

/// Produces a click, an install and an event of the app with long names.
fn produce_long(kafka: &Kafka, site: &Site, long: &Value, day: Date) {
    let message = |event: &Value| Message::new("app-long", event.to_string()).at(noon(day));
    let (id, ids) = (long["id"].as_str().unwrap(), json!({"oaid": long["device"]}));
    let event = |id: String, time: i64| {
        let long_id = format!("{id}{}", &long["id"].as_str().unwrap()[..LONG_ID_CHARS - id.len()]);
        json!({"app": "app-long", "event_id": long_id, "time": noon(day) + time, "ids": ids})
    };
    let click = json!({"type": "click", "app": "app-long", "click_id": id, "spreadid": 8,
        "time": noon(day) - 60_000, "ids": ids, "site": long["name"]});
    let install = event(String::new(), 0);
    let mut purchase = event("e".into(), 60_000);
    purchase["name"] = long["event"].clone();
    let name = long["name"].as_str().unwrap();
    purchase["props"] = json!({name: name});
    kafka.produce(&site.topics.clicks, [message(&click)]);
    kafka.produce(&site.topics.activations, [message(&install)]);
    kafka.produce(&site.topics.effects, [message(&purchase)]);
}

#[test]
fn every_task_works_in_a_browser() {
    let kafka = Kafka::shared();
    let (long, long_settings) = long(today().yesterday().unwrap());
    let collect_port = free_port();
    let collect = collect(collect_port);
    let site = Site::new(kafka, "page", 1, &format!("{}{long_settings}{collect}", settings()));
    let today = today();
    let first = today.checked_sub(DAYS.days()).unwrap();
    let yesterday = today.yesterday().unwrap();
    let days: Vec<Date> = first.series(1.day()).take(DAYS as usize).collect();
    produce(kafka, &site, &days);
    produce_long(kafka, &site, &long, yesterday);
    let adtrail = site.start();
    adtrail.await_read((DAYS * INSTALLS * 5 / 2 + 3).cast_unsigned());
    adtrail.await_caught_up();
    let report = |query: &str| {
        let path = format!("/click/app-x/toutiao?{query}");
        http::get(&format!("127.0.0.1:{collect_port}"), &path)
            .expect("the collector responds")
            .status
    };
    let time = noon(yesterday);
    let click = format!("spreadid=7&click_id=c-link&time={time}&oaid={{oaid}}&ip={{ip}}");
    assert_eq!([report(&click), report("click_id=c-none")], [200, 400]);
    let command = ["link", "--app", "app-x", "--channel", "toutiao", "--campaign", "7"];
    let link = String::from_utf8(site.run(&command).stdout).unwrap();

    let rows = |days: i64| days * INSTALLS * 2;
    let of_month = days.iter().filter(|day| day.first_of_month() == today.first_of_month());
    let credited = DAYS * INSTALLS / 2;
    let facts = json!({
        "base": format!("http://{}", adtrail.export),
        "folder": site.path(),
        "first_day": first.to_string(),
        "last_day": yesterday.to_string(),
        "custom": format!("app=app-x&range=custom&from={first}&to={yesterday}"),
        "file": format!("app-x_{first}_{yesterday}_UTC.csv"),
        "days": DAYS,
        "yesterday": rows(1),
        "last7": rows(6),
        "month": rows(of_month.count() as i64),
        "all": rows(DAYS),
        "installs": rows(DAYS) / 2,
        "legend": [format!("toutiao {credited}"), format!("no channel {credited}")],
        "device": oaid(yesterday, 2),
        "activation": format!("a-{yesterday}-2"),
        "click": format!("c-{yesterday}-2"),
        "link": link.trim_end(),
        "long": long,
    });
    let tasks = [
        "choose", "mistakes", "plain", "download", "command", "lookup", "links", "long",
        "keyboard", "looks",
    ];
    drive(&tasks, &facts);
    let log = adtrail.stop();
    // A page that cannot be rendered, or a store that cannot be read, is an error.
    assert!(!log.lines().any(|line| line.contains(" ERROR ")), "{log}");
    assert!(!log.contains(&oaid(yesterday, 2)), "a device id is in the log: {log}");
}

#[test]
fn a_token_shows_only_its_apps() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "page.tokens", 1, &settings());
    let (x, entry_x) = site.new_token(&["--app", "app-x"]);
    let (y, entry_y) = site.new_token(&["--app", "app-y"]);
    let (old, entry_old) = site.new_token(&["--app", "app-x", "--expires", "2999-12-31"]);
    let entry_old = entry_old.replace("2999-12-31", "2020-12-31");
    site.change(&format!("{}\n{entry_x}\n{entry_y}\n{entry_old}", settings()));
    let day: Date = "2026-03-10".parse().unwrap();
    produce(kafka, &site, &[day]);
    let adtrail = site.start();
    adtrail.await_read((INSTALLS * 5 / 2).cast_unsigned());
    let facts = json!({
        "base": format!("http://{}", adtrail.export),
        "folder": site.path(),
        "first_day": day.to_string(),
        "last_day": day.to_string(),
        "token_x": x,
        "token_y": y,
        "expired": old,
        "device": oaid(day, 2),
        "activation": format!("a-{day}-2"),
    });
    drive(&["tokens"], &facts);
    let log = adtrail.stop();
    // A preview counts as an export.
    let previews = log.lines().filter(|line| line.contains("format=\"preview\""));
    let first = previews.clone().next().unwrap_or_else(|| panic!("no preview is in {log}"));
    let id = format!("token=\"{}\"", x.split('_').nth(1).unwrap());
    for part in ["an export has ended", &id, "app=\"app-x\"", "rows=12", "\"complete\""] {
        assert!(first.contains(part), "{part:?} is not in {first}");
    }
    assert!(previews.clone().all(|line| !line.contains("app-y")), "{log}");
    for token in [x, y, old] {
        let secret = token.rsplit_once('_').unwrap().1;
        assert!(!log.contains(secret), "{log}");
    }
}

/// The store fails midway: neither the browser nor the page shows the file as complete.
#[test]
fn a_truncated_file_is_shown_as_failed() {
    const ROWS: i64 = 30_000;
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "page.failure", 1, &settings());
    let day: Date = "2026-03-10".parse().unwrap();
    let installs = (0..ROWS).map(|number| {
        let time = noon(day) + number;
        // Values that RocksDB cannot compress.
        let ua = format!("{:x}", u128::from(number.cast_unsigned() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let event = json!({"app": "app-x", "event_id": format!("a-{number}"), "time": time, "ua": ua,
            "ids": {"oaid": oaid(day, number)}});
        Message::new("app-x", event.to_string()).at(noon(day))
    });
    kafka.produce(&site.topics.activations, installs);
    let adtrail = site.start();
    adtrail.await_read(ROWS.cast_unsigned());
    adtrail.stop();
    // Opening the store flushes the WAL into table files.
    site.start().stop();
    damage_tables(&site.path().join("store"), 100_000);
    let adtrail = site.start();
    let facts = json!({
        "base": format!("http://{}", adtrail.export),
        "custom": format!("app=app-x&range=custom&from={day}&to={day}"),
        "all": ROWS,
    });
    drive(&["failure"], &facts);
    let (_, log) = adtrail.terminate();
    assert!(log.contains("an export failed"), "{log}");
}
