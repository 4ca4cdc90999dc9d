//! The service over a real store, tested over HTTP.

pub(crate) mod fixture;
mod malformed;
mod requests;
mod surface;

use std::io::Read;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::Duration;

use attribution::facts::event::{Fact, Pid};
use serde_json::{Value, json};

use crate::Chunk;
use crate::ExportQuery;
use crate::Format;
use crate::format::write_rows::Selection;
use crate::http::state::SCANS_MAX;
use crate::write_rows;
use fixture::{Answer, Bed, DAY, MINUTE, activation, click, effect, many_activations};

const EVENTS: &str = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10";

/// A credited install with a contributor, its effect, an organic install, an orphan with a hostile name, and an
/// install of another app.
fn facts() -> Vec<Fact> {
    let mut other = activation("b-1", "d9", DAY + MINUTE);
    other.pid = Pid(2);
    vec![
        click(9, "c-0", "d1", DAY - 3 * MINUTE),
        click(7, "c-1", "d1", DAY - MINUTE),
        Fact::Activation(activation("a-1", "d1", DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", "d1", DAY + 2 * MINUTE)),
        Fact::Activation(activation("a-2", "d2", DAY + 3 * MINUTE)),
        Fact::Effect(effect("e-2", "a,\r\n\"b\" ü", "d3", DAY + 4 * MINUTE)),
        Fact::Activation(other),
    ]
}

fn bed() -> Bed {
    Bed::new(facts())
}

#[test]
fn an_export_has_every_cell() {
    let bed = bed();
    let answer = bed.get(EVENTS);
    assert_eq!(answer.status, 200);
    assert!(answer.is_ended);
    let header: Vec<_> = crate::format::columns::native::Column::names().collect();
    let ua = "\"Mozilla/5.0 (X, like \"\"Y\"\")\"";
    let expected = [
        header.join(","),
        format!(
            "activation,activation,2026-03-10T00:01:00.000Z,app-x,1,a-1,attributed,install,7,\
             \"Say \"\"hi\"\"\",\"tou,tiao\",oaid,click,2026-03-09T23:59:00.000Z,c-1,a-1,\
             2026-03-10T00:01:00.000Z,,9,unknown,click,2026-03-09T23:57:00.000Z,oaid,,,,,,,,,,,\
             d1,,,,,,,,,{ua},,android,,1.2,,,"
        ),
        "effect,purchase,2026-03-10T00:02:00.000Z,app-x,1,e-1,attributed,install,7,\
         \"Say \"\"hi\"\"\",\"tou,tiao\",oaid,click,2026-03-09T23:59:00.000Z,c-1,a-1,\
         2026-03-10T00:01:00.000Z,,9,unknown,click,2026-03-09T23:57:00.000Z,oaid,,,,,,,,,,,\
         d1,,,,,,,,,,,,,,9.99,CNY,\"{\"\"level\"\":\"\"3\"\"}\""
            .into(),
        format!(
            "activation,activation,2026-03-10T00:03:00.000Z,app-x,1,a-2,organic,install,0,,,,,,,\
             a-2,2026-03-10T00:03:00.000Z,,,,,,,,,,,,,,,,,d2,,,,,,,,,{ua},,android,,1.2,,,"
        ),
        "effect,\"a,\r\n\"\"b\"\" ü\",2026-03-10T00:04:00.000Z,app-x,1,e-2,orphan,,0,,,,,,,,,,\
         ,,,,,,,,,,,,,,,d3,,,,,,,,,,,,,,9.99,CNY,\"{\"\"level\"\":\"\"3\"\"}\""
            .into(),
    ];
    assert_eq!(answer.text(), expected.join("\n") + "\n");
}

#[test]
fn types_fields_times_and_zones_are_applied() {
    let bed = bed();
    let check = |more: &str, expected: &str| {
        let answer = bed.get(&format!("{EVENTS}&{more}"));
        assert_eq!((answer.status, answer.is_ended), (200, true));
        assert_eq!(answer.text(), expected, "{more}");
    };
    check("fields=event_id", "event_id\na-1\ne-1\na-2\ne-2\n");
    check("type=effect&fields=spreadid,event_id", "spreadid,event_id\n7,e-1\n0,e-2\n");
    check("type=activation&fields=event_id,pid", "event_id,pid\na-1,1\na-2,1\n");
    // The day in New York begins after the last event.
    check("timezone=America/New_York&fields=pid", "pid\n");
    // A line of one empty cell is quoted.
    check("fields=gaid", "gaid\n\"\"\n\"\"\n\"\"\n\"\"\n");
    let check_range = |range: &str, expected: &str| {
        let target = format!("/v1/apps/app-x/events.csv?{range}&fields=event_time,event_id");
        assert_eq!(bed.get(&target).text(), format!("event_time,event_id\n{expected}"));
    };
    check_range(
        "from=2026-03-10T00:02:00Z&to=2026-03-10T08:03:00+08:00",
        "2026-03-10T00:02:00.000Z,e-1\n",
    );
    check_range(
        "from=2026-03-10T08:03&to=2026-03-10&timezone=Asia%2FShanghai",
        "2026-03-10T08:03:00.000+08:00,a-2\n2026-03-10T08:04:00.000+08:00,e-2\n",
    );
    check_range("from=2026-03-10T00:02:00Z&to=2026-03-10T00:02:00Z", "");
    // Meant as an offset, but an unescaped plus makes it a time of day.
    let meant = bed.get("/v1/apps/app-x/events.csv?from=2026-03-10+08:00&to=2026-03-11");
    assert!(meant.status == 400 && meant.text().contains("write %2B for a +"), "{meant:?}");
    let other =
        bed.get("/v1/apps/app%20y/events.csv?from=2026-03-10&to=2026-03-10&fields=app,event_id");
    assert_eq!(other.text(), "app,event_id\napp y,b-1\n");
}

#[test]
fn filters_select_rows() {
    let bed = bed();
    let check = |filters: &str, expected: &[&str]| {
        let answer = bed.get(&format!("{EVENTS}&fields=event_id&{filters}"));
        assert_eq!((answer.status, answer.is_ended), (200, true), "{filters}");
        let lines: Vec<_> = answer.text().lines().skip(1).collect();
        assert_eq!(lines, expected, "{filters}");
    };
    check("status=attributed", &["a-1", "e-1"]);
    check("status=organic,orphan", &["a-2", "e-2"]);
    check("status=organic&status=orphan", &["a-2", "e-2"]);
    check("status=rejected", &[]);
    check("install_type=install", &["a-1", "e-1", "a-2"]);
    check("install_type=reinstall,duplicate", &[]);
    check("spreadid=7", &["a-1", "e-1"]);
    check("spreadid=0,9", &["a-2", "e-2"]);
    check("event_name=purchase,activation", &["a-1", "e-1", "a-2"]);
    check("event_name=Purchase", &[]);
    check("event_name=%22a,%0d%0a%22%22b%22%22%20%C3%BC%22", &["e-2"]);
    check("channel=%22tou,tiao%22", &["a-1", "e-1"]);
    check("channel=unknown", &[]);
    check("type=effect&status=attributed,orphan&spreadid=7", &["e-1"]);
    // About as many as fit into a request.
    let ids: Vec<_> = (1..10_000).map(|id: u32| id.to_string()).collect();
    check(&format!("spreadid={}", ids.join(",")), &["a-1", "e-1"]);
}

#[test]
fn json_lines_have_the_same_rows() {
    let bed = bed();
    let target = EVENTS.replace(".csv", ".ndjson");
    let answer = bed.get(&format!("{target}&timezone=Asia/Shanghai"));
    check_headers(
        &answer,
        &[
            ("content-type", Some("application/x-ndjson")),
            (
                "content-disposition",
                Some("attachment; filename=\"app-x_2026-03-10_2026-03-10_Asia-Shanghai.ndjson\""),
            ),
        ],
    );
    let lines: Vec<Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // In Shanghai, too, the day begins before the first event.
    assert_eq!(lines.len(), 4);
    let first = &lines[0];
    assert_eq!(first.as_object().map(serde_json::Map::len), Some(50));
    assert_eq!(first["event_time"], "2026-03-10T08:01:00.000+08:00");
    assert_eq!((&first["pid"], &first["spreadid"]), (&json!(1), &json!(7)));
    assert_eq!((&first["campaign"], &first["channel"]), (&json!("Say \"hi\""), &json!("tou,tiao")));
    assert_eq!((&first["contributor1_spreadid"], &first["gaid"]), (&json!(9), &Value::Null));
    assert_eq!(
        (&lines[1]["revenue"], &lines[1]["props"]),
        (&json!("9.99"), &json!({"level": "3"}))
    );
    assert_eq!(lines[3]["event_name"], "a,\r\n\"b\" ü");
    let none = bed.send_with(&format!("GET {target}&spreadid=5 HTTP/1.1"), &["TE: trailers"]);
    assert_eq!((none.status, none.is_ended, none.text()), (200, true, ""));
    assert_eq!(none.trailers[0], ("adtrail-rows".to_owned(), "0".to_owned()));
    let few = bed.get(&format!("{target}&fields=props.level,pid&type=effect"));
    let line = "{\"props.level\":\"3\",\"pid\":1}\n";
    assert_eq!(few.text(), line.repeat(2));
    let none = bed.get(&format!("{target}&event_name=none"));
    assert_eq!((none.status, none.text(), none.is_ended), (200, "", true));
}

#[test]
fn the_excel_dialect_keeps_texts_and_times() {
    let bed = bed();
    let fields = "event_time,event_name,app_version,campaign,channel,pid,revenue";
    let answer = bed.get(&format!("{EVENTS}&dialect=excel&timezone=Asia/Shanghai&fields={fields}"));
    let lines = [
        format!("\u{feff}{fields}"),
        "2026-03-10 08:01:00,activation,\"=\"\"1.2\"\"\",\"Say \"\"hi\"\"\",\"tou,tiao\",1,".into(),
        "2026-03-10 08:02:00,purchase,,\"Say \"\"hi\"\"\",\"tou,tiao\",1,9.99".into(),
        "2026-03-10 08:03:00,activation,\"=\"\"1.2\"\"\",,,1,".into(),
        "2026-03-10 08:04:00,\"a,\r\n\"\"b\"\" ü\",,,,1,9.99".into(),
    ];
    assert_eq!(answer.text(), lines.join("\r\n") + "\r\n");
}

#[test]
fn pages_add_up_to_the_whole_export() {
    let bed = Bed::new(many_activations(250));
    let whole = bed.get(&format!("{EVENTS}&fields=event_id")).text().to_owned();
    for limit in [1, 7, 249, 250, 251] {
        let mut pages = bed.pages(&format!("{EVENTS}&fields=event_id&limit={limit}")).into_iter();
        let last = pages.next_back().unwrap();
        let lines = |page: &Answer| page.text().strip_prefix("event_id\n").unwrap().to_owned();
        let mut rows = String::from("event_id\n");
        for page in pages {
            assert_eq!(lines(&page).lines().count(), limit, "only the last page has fewer");
            rows += &lines(&page);
        }
        assert!(lines(&last).lines().count() <= limit, "{limit}");
        assert_eq!(rows + &lines(&last), whole, "{limit}");
    }
}

#[test]
fn a_cursor_is_valid_only_for_its_query() {
    let bed = Bed::new(many_activations(10));
    let first = bed.get(&format!("{EVENTS}&limit=4"));
    let cursor = first.cursor();
    let get = |more: &str| bed.get(&format!("{EVENTS}&after={cursor}{more}"));
    assert_eq!(get("&fields=event_id").text().lines().count(), 7);
    assert_eq!(get("&fields=pid&dialect=excel&limit=2").text().lines().count(), 3);
    for other in ["&status=organic", "&type=activation", "&spreadid=0"] {
        check_problem(&get(other), 400, "bad-parameter", Some("after"));
    }
    let day = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-11";
    check_problem(&bed.get(&format!("{day}&after={cursor}")), 400, "bad-parameter", Some("after"));
    let app = EVENTS.replace("app-x", "app%20y");
    check_problem(&bed.get(&format!("{app}&after={cursor}")), 400, "bad-parameter", Some("after"));
}

#[track_caller]
fn check_headers(answer: &Answer, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(answer.header(name), *value, "{name}");
    }
}

#[test]
fn head_has_the_headers_of_get() {
    let bed = bed();
    let target = format!("{EVENTS}&timezone=Asia/Shanghai");
    let expected = [
        ("content-type", Some("text/csv; charset=utf-8; header=present")),
        (
            "content-disposition",
            Some("attachment; filename=\"app-x_2026-03-10_2026-03-10_Asia-Shanghai.csv\""),
        ),
        ("adtrail-range-from", Some("2026-03-09T16:00:00.000Z")),
        ("adtrail-range-to", Some("2026-03-10T16:00:00.000Z")),
        ("adtrail-complete-until", Some("2026-03-10T00:00:00.001Z")),
        ("content-length", None),
    ];
    check_headers(&bed.get(&target), &expected);
    let head = bed.send(&format!("HEAD {target} HTTP/1.1"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    check_headers(&head, &expected);
    let head = bed.send("HEAD /v1/apps/app-x/events.csv HTTP/1.1");
    assert_eq!((head.status, head.body.len()), (400, 0));
    check_headers(&head, &[("content-type", Some("application/problem+json"))]);
}

#[track_caller]
pub(crate) fn check_problem(answer: &Answer, status: u16, kind: &str, parameter: Option<&str>) {
    assert_eq!(answer.status, status);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!(problem["type"], format!("/problems/{kind}"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["parameter"].as_str(), parameter);
    assert!(problem["title"].is_string() && problem["detail"].is_string());
}

#[test]
fn invalid_requests_are_problems() {
    let bed = bed();
    let check = |target: &str, status, kind, parameter| {
        check_problem(&bed.get(target), status, kind, parameter);
    };
    check("/v1/apps/app-z/events.csv", 404, "unknown-app", None);
    check("/v1/apps/%ff/events.csv", 404, "not-found", None);
    check("/v1/apps/app-x/events.xlsx", 404, "not-found", None);
    check("/v1/apps/app-x/events.csv/", 404, "not-found", None);
    check("/v1/apps?x=1", 400, "unknown-parameter", Some("x"));
    check("/v1/apps/app-x/events.csv?to=2026-03-10", 400, "missing-parameter", Some("from"));
    check(&format!("{EVENTS}&to=2026-03-11"), 400, "repeated-parameter", Some("to"));
    check(&format!("{EVENTS}&fields=nope"), 400, "bad-parameter", Some("fields"));
    check(&format!("{EVENTS}&timezone=Mars/Base"), 400, "bad-parameter", Some("timezone"));
    check(&format!("{EVENTS}&type=%ff"), 400, "bad-parameter", Some("type"));
    check(&format!("{EVENTS}&preset=x"), 400, "bad-parameter", Some("preset"));
    for name in ["status", "channel", "spreadid", "install_type", "dialect", "limit", "after"] {
        check(&format!("{EVENTS}&{name}=x"), 400, "bad-parameter", Some(name));
    }
    let pull = EVENTS.replace("/v1/apps/", "/api/raw-data/export/app/");
    let pull = pull.replace("events.csv", "installs_report/v5");
    for address in [EVENTS, &EVENTS.replace("csv", "ndjson"), &pull] {
        let address = format!("{address}&limt=5&export_id=f0000000000000ff");
        let problem = bed.get(&address).json();
        let detail = problem["detail"].as_str().or(problem["error"].as_str()).unwrap();
        assert!(detail.contains("export_id"), "{detail}");
    }
    let problem = bed.get(&format!("{EVENTS}&limt=5")).json();
    assert_eq!(problem["allowed"], json!(ExportQuery::PARAMETERS));
    assert!(problem["allowed"].as_array().unwrap().contains(&"export_id".into()));
    let problem = bed.get(&format!("{EVENTS}&channel=toutiao")).json();
    let detail = "channel: no campaign of the app has this channel, the nearest is \"tou,tiao\": \
                  \"toutiao\"";
    assert_eq!(problem["detail"], detail);
    let problem = bed.get(&format!("{EVENTS}&fields=chanel")).json();
    assert_eq!(problem["allowed"].as_array().map(Vec::len), Some(62));
}

#[test]
fn other_methods_and_versions_are_refused() {
    let bed = bed();
    for method in ["POST", "DELETE", "OPTIONS", "BREW"] {
        for target in ["/", "/v1/apps", EVENTS] {
            let answer = bed.send(&format!("{method} {target} HTTP/1.1"));
            check_problem(&answer, 405, "method-not-allowed", None);
            check_headers(&answer, &[("allow", Some("GET,HEAD"))]);
        }
    }
    check_problem(&bed.send(&format!("GET {EVENTS} HTTP/1.0")), 505, "http-version", None);
}

#[test]
fn apps_are_listed_by_pid() {
    let bed = bed();
    let expected = json!([
        {"key": "app-x", "pid": 1, "name": "App X"},
        {"key": "app y", "pid": 2, "name": "Y"},
    ]);
    assert_eq!(bed.get("/v1/apps").json(), expected);
}

#[test]
fn a_download_equals_what_write_rows_writes() {
    let bed = Bed::new(many_activations(30_000));
    let answer = bed.get(EVENTS);
    assert!(answer.is_ended);
    let query =
        ExportQuery::parse(Format::Csv, [("from", "2026-03-10"), ("to", "2026-03-10")]).unwrap();
    let policy = &bed.config.policy;
    let app = policy.app(Pid(1)).unwrap();
    let mut chunks = Vec::new();
    let rows = write_rows(&bed.reader, &[app], &query, policy, |chunk| {
        chunks.push(chunk);
        ControlFlow::Continue(())
    });
    assert_eq!(rows.unwrap(), 30_000);
    assert!(chunks.len() > 10 && chunks.iter().all(|chunk| chunk.bytes.len() < 160 << 10));
    assert_eq!(chunks.iter().map(|chunk| chunk.rows).sum::<u64>(), 30_000);
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| chunk.bytes).collect();
    assert!(answer.body == chunks.concat());
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 30_001);

    let mut taken = 0;
    let rows = write_rows(&bed.reader, &[app, app], &query, policy, |_| {
        taken += 1;
        if taken == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(taken, 2);
    assert!(rows.unwrap() < 30_000);
}

/// With and without prefetching, at the boundaries of its first rows and batches.
#[test]
fn prefetched_rows_are_the_same() {
    let mut facts = many_activations(30_000);
    facts.extend((0..30_000).step_by(7).map(|n| click(7, "", &format!("device-{n}"), DAY + n - 9)));
    let bed = Bed::new(facts);
    let policy = &bed.config.policy;
    let app = policy.app(Pid(1)).unwrap();
    for (name, value) in [
        ("type", "all"),
        ("spreadid", "7"),
        ("spreadid", "8"),
        ("status", "attributed"),
        ("limit", "2048"),
        ("limit", "2049"),
        ("limit", "29999"),
        ("from", "2026-03-10T00:34:07"),
        ("from", "2026-03-10T00:34:08"),
    ] {
        let range = [("from", "2026-03-10"), ("to", "2026-03-11")];
        let query = range.into_iter().filter(|(known, _)| *known != name).chain([(name, value)]);
        let query = ExportQuery::parse(Format::Csv, query).unwrap();
        let [here, ahead] = [false, true].map(|may_read_ahead| {
            let view = bed.reader.view();
            let selection = Selection { view: &view, app, query: &query, policy, may_read_ahead };
            let mut bytes = Vec::new();
            let sink = |chunk: Chunk| {
                bytes.extend(chunk.bytes);
                ControlFlow::Continue(())
            };
            let rows = selection.write(sink).unwrap();
            (rows, bytes)
        });
        assert!(here == ahead, "{name}={value}: {} rows and {}", here.0, ahead.0);
    }
}

/// The checksum that `sha256sum` prints.
fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    let sum = Command::new("sha256sum").arg(file.path()).output().unwrap();
    String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().into()
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
fn downloads_are_compressed_on_request() {
    let bed = Bed::new(many_activations(30_000));
    let plain = bed.get(EVENTS);
    check_headers(&plain, &[("content-encoding", None), ("vary", Some("accept-encoding"))]);
    for (encoding, command) in [("gzip", ["gzip", "-d"]), ("zstd", ["zstd", "-d"])] {
        let header = format!("Accept-Encoding: {encoding}");
        let answer = bed.send_with(&format!("GET {EVENTS} HTTP/1.1"), &[&header, "TE: trailers"]);
        check_headers(&answer, &[("content-encoding", Some(encoding))]);
        assert!(answer.is_ended && answer.body.len() * 4 < plain.body.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &answer.body).unwrap();
        let [program, option] = command;
        let input = std::fs::File::open(file.path()).unwrap();
        let whole = Command::new(program).arg(option).stdin(input).output().unwrap();
        assert!(whole.stdout == plain.body, "{encoding}");
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
fn a_slow_client_gets_all_rows_and_a_disconnected_one_ends_its_scan() {
    let bed = Bed::new(many_activations(60_000));
    let mut slow = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
    let mut gone = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
    gone.read_exact(&mut [0; 1]).unwrap();
    drop(gone);
    let mut bytes = vec![0; 1];
    slow.read_exact(&mut bytes).unwrap();
    let all_but_slow = async {
        let scans = bed.state.scans.acquire_many(SCANS_MAX as u32 - 1);
        drop(tokio::time::timeout(Duration::from_secs(60), scans).await.unwrap().unwrap());
    };
    bed.runtime.block_on(all_but_slow);
    let mut part = [0; 4096];
    loop {
        match slow.read(&mut part).unwrap() {
            0 => break,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
    let answer = Answer::parse(&bytes);
    assert!(answer.is_ended);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 60_001);
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
    assert!(Answer::parse(&bytes).is_ended);
    bed.join();
    assert!(std::net::TcpStream::connect(bed.address).is_err());
}
