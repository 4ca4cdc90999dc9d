//! Rows in each format.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use attribution::facts::event::{Fact, Pid};
use config::AppStore;
use serde_json::{Value, json};
use store::layout::key::KEY_BYTES;

use super::fixture::{
    Bed, DAY, EVENTS, MINUTE, activation, click, effect, many_activations, with_params,
};
use super::{bed, check_headers};
use crate::format::columns::native::Column;
use crate::format::write_rows::Selection;
use crate::query::cursor::Cursor;
use crate::{Chunk, ExportQuery, Format, write_rows};

#[test]
fn an_export_has_every_cell() {
    let bed = bed();
    let answer = bed.get(EVENTS);
    assert_eq!(answer.status, 200);
    assert!(answer.is_ended);
    let header: Vec<_> = Column::names().collect();
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
fn callback_tokens_and_ads_are_exported_on_request() {
    let earlier = with_params(
        click(9, "c-2", "d1", DAY - 3 * MINUTE),
        &[("callback", "t2"), ("campaign_name", "A, B")],
    );
    let winner = with_params(
        click(7, "c-1", "d1", DAY - MINUTE),
        &[("ad_id", "=1"), ("callback", "t/1+="), ("placement", "p")],
    );
    let bed = Bed::new(vec![
        earlier,
        winner,
        Fact::Activation(activation("a-1", "d1", DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", "d1", DAY + 2 * MINUTE)),
    ]);
    let fields = "touch_callback,touch_ad_id,touch_ad_name,contributor1_params,\
                  contributor1_callback,contributor2_params";
    let csv = bed.get(&format!("{EVENTS}&fields={fields}"));
    let expected = "t/1+=,=1,,\"{\"\"campaign_name\"\":\"\"A, B\"\"}\",t2,\n,=1,,,,\n";
    assert_eq!(csv.text(), format!("{fields}\n{expected}"));
    let target = EVENTS.replace(".csv", ".ndjson");
    let lines = bed.get(&format!("{target}&type=activation&fields={fields}"));
    let expected = json!({
        "touch_callback": "t/1+=", "touch_ad_id": "=1", "touch_ad_name": null,
        "contributor1_params": {"campaign_name": "A, B"}, "contributor1_callback": "t2",
        "contributor2_params": null,
    });
    assert_eq!(serde_json::from_str::<Value>(lines.text()).unwrap(), expected);
    let excel = bed.get(&format!("{EVENTS}&dialect=excel&fields=touch_ad_id"));
    assert_eq!(excel.text(), "\u{feff}touch_ad_id\r\n'=1\r\n'=1\r\n");
    for more in ["", "&preset=appsflyer", "&fields=event_id,props,contributor1_params"] {
        let answer = bed.get(&format!("{EVENTS}{more}"));
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains("t/1+=") && !answer.text().contains("t2"), "{more}");
    }
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

/// Rows with 100 KiB of props, of which a file has one byte or nothing.
#[test]
fn a_chunk_ends_after_a_limited_amount_of_work() {
    const ROWS: u64 = 60;
    /// A chunk ends with the row that reaches 1 MiB.
    const ROWS_OF_CHUNK: u64 = 11;
    let long = "x".repeat(100 << 10);
    let facts = (0..ROWS).map(|number| {
        let mut effect = effect(&format!("e-{number}"), "buy", "device", DAY + number);
        effect.props = vec![("a".into(), "1".into()), ("long".into(), long.as_str().into())];
        Fact::Effect(effect)
    });
    let bed = Bed::new(facts.collect());
    let (policy, range) = (&bed.config.policy, [("from", "2026-03-10"), ("to", "2026-03-10")]);
    for (name, value, rows) in [("fields", "props.a", ROWS), ("event_name", "other", 0)] {
        let query = range.into_iter().chain([(name, value)]);
        let query = ExportQuery::parse(Format::Csv, query).unwrap();
        let mut chunks = Vec::new();
        let written =
            write_rows(&bed.reader, &[policy.app(Pid(1)).unwrap()], &query, policy, |chunk| {
                chunks.push(chunk.rows);
                ControlFlow::Continue(())
            });
        assert_eq!((written.unwrap(), chunks.iter().sum::<u64>()), (rows, rows));
        assert!(chunks.len() as u64 >= ROWS / ROWS_OF_CHUNK, "{name}: {chunks:?}");
        assert!(chunks.iter().all(|rows| *rows <= ROWS_OF_CHUNK), "{name}: {chunks:?}");
    }
}

/// A service whose rows of pid 1 are in four partitions.
fn bed_with_fanout(facts: Vec<Fact>) -> Bed {
    Bed::with(facts, |config| {
        let fanout = AppStore { retention_ms: None, fanout: Some(4) };
        config.store.apps.insert(Pid(1), fanout);
    })
}

/// Rows over eight hours, a few of them credited, with a millisecond that has more than a part, and one row long after
/// the others.
fn uneven_facts() -> Vec<Fact> {
    let mut facts = many_activations(30_000);
    facts.extend((0..30_000).step_by(7).map(|n| click(7, "", &format!("device-{n}"), DAY + n - 9)));
    let more = |id: String, time| Fact::Activation(activation(&id, &id, time));
    facts.extend((0..2_000).map(|n| more(format!("same-time-{n}"), DAY + 333 * MINUTE)));
    facts.push(more("late".into(), DAY + 1_430 * MINUTE));
    facts
}

/// Writes the rows of pid 1 and returns the chunks.
fn chunks(bed: &Bed, query: &ExportQuery, threads: &(dyn Fn() -> usize + Sync)) -> Vec<Chunk> {
    let (view, policy) = (bed.reader.view(), &*bed.config.policy);
    let app = policy.app(Pid(1)).unwrap();
    let selection = Selection { view: &view, app, query, policy, threads };
    let mut chunks = Vec::new();
    let rows = selection.write(|chunk: Chunk| {
        chunks.push(chunk);
        ControlFlow::Continue(())
    });
    assert_eq!(rows.unwrap(), chunks.iter().map(|chunk| chunk.rows).sum::<u64>());
    chunks
}

/// Writes the rows of pid 1 and returns their number and the file.
fn written(bed: &Bed, query: &ExportQuery, threads: &(dyn Fn() -> usize + Sync)) -> (u64, Vec<u8>) {
    let chunks = chunks(bed, query, threads);
    let rows = chunks.iter().map(|chunk| chunk.rows).sum();
    (rows, chunks.into_iter().flat_map(|chunk| chunk.bytes).collect())
}

/// Checks that the file is the same with any number of threads, and if the number changes.
#[track_caller]
fn check_threads(bed: &Bed, query: &ExportQuery, name: &str) -> (u64, Vec<u8>) {
    let alone = written(bed, query, &|| 1);
    for threads in [2, 4, 8] {
        let several = written(bed, query, &move || threads);
        assert!(several == alone, "{name}: {} rows, not {}, {threads}", several.0, alone.0);
    }
    for every in [1, 2, 3, 5] {
        let calls = AtomicUsize::new(0);
        let changing = || {
            let is_alone = calls.fetch_add(1, SeqCst) / every % 2 == 1;
            if is_alone { 1 } else { 4 }
        };
        let several = written(bed, query, &changing);
        assert!(several == alone, "{name}: {} rows, not {}, changing", several.0, alone.0);
    }
    alone
}

#[test]
fn rows_are_the_same_with_any_number_of_threads() {
    let bed = bed_with_fanout(uneven_facts());
    for (format, name, value) in [
        (Format::Csv, "type", "all"),
        (Format::Csv, "spreadid", "7"),
        (Format::Csv, "spreadid", "8"),
        (Format::Csv, "status", "attributed"),
        (Format::Csv, "limit", "2048"),
        (Format::Csv, "limit", "2049"),
        (Format::Csv, "limit", "29999"),
        (Format::Csv, "from", "2026-03-10T00:34:07"),
        (Format::Csv, "from", "2026-03-10T00:34:08"),
        (Format::Csv, "from", "2026-03-10T05:33"),
        (Format::Csv, "dialect", "excel"),
        (Format::Ndjson, "timezone", "Asia/Shanghai"),
    ] {
        let range = [("from", "2026-03-10"), ("to", "2026-03-11")];
        let query = range.into_iter().filter(|(known, _)| *known != name).chain([(name, value)]);
        let query = ExportQuery::parse(format, query).unwrap();
        check_threads(&bed, &query, &format!("{name}={value}"));
    }
}

/// The rows of other threads begin with a chunk of their own.
#[test]
fn few_rows_are_written_without_other_threads() {
    let bed = Bed::new(many_activations(20_000));
    let sizes = |to, threads| -> Vec<usize> {
        let query = ExportQuery::parse(Format::Csv, [("from", "2026-03-10"), ("to", to)]).unwrap();
        chunks(&bed, &query, &move || threads).iter().map(|chunk| chunk.bytes.len()).collect()
    };
    // 2,200 rows and 20,000, a second apart.
    assert_eq!(sizes("2026-03-10T00:36:40", 4), sizes("2026-03-10T00:36:40", 1));
    assert_ne!(sizes("2026-03-10", 4), sizes("2026-03-10", 1));
}

/// The row after which the file begins is alone, in a part, in the millisecond with many rows, or the last.
#[test]
fn a_file_that_begins_after_a_row_is_the_rest_of_the_whole_one() {
    let bed = bed_with_fanout(uneven_facts());
    let range = [("from", "2026-03-10"), ("to", "2026-03-10"), ("fields", "event_id,event_time")];
    let query = ExportQuery::parse(Format::Csv, range).unwrap();
    let (rows, whole) = check_threads(&bed, &query, "whole");
    assert_eq!(rows, 32_001);
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut keys = Vec::new();
    let app = bed.config.policy.app(Pid(1)).unwrap();
    let scanned = bed.reader.scan_rows(app, query.from, query.to, |key, _| {
        keys.push(*key);
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    let same_time = keys.iter().position(|key| key.event_time.millis() == DAY + 333 * MINUTE);
    for index in [0, 2_047, 2_048, 9_999, same_time.unwrap() + 1_000, 31_999, 32_000] {
        let after = Some(Cursor::after(&keys[index], &query));
        let query = ExportQuery { after, ..query.clone() };
        let (rows, rest) = check_threads(&bed, &query, &format!("after {index}"));
        assert_eq!(rows, 32_000 - index as u64);
        assert!(rest == [&lines[..1], &lines[index + 2..]].concat().concat(), "after {index}");
    }
}

#[test]
fn parts_have_similar_sizes() {
    const BYTES: u64 = 32 << 10;
    // Whole hours, in which rows are evenly spread.
    let bed = bed_with_fanout(many_activations(8 * 3_600));
    let (view, app) = (bed.reader.view(), bed.config.policy.app(Pid(1)).unwrap());
    let ExportQuery { from, to, .. } = ExportQuery::all_time();
    let parts: Vec<_> = view.parts(app, from..to, BYTES).unwrap().collect();
    assert!(parts.len() > 40, "{} parts", parts.len());
    assert_eq!((parts[0].start, parts[parts.len() - 1].end), (from, to));
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
    let sizes = parts.iter().map(|part| {
        let (mut bytes, mut rows) = (0, view.rows(app, part.clone(), None).unwrap());
        while let Some((_, value)) = rows.current().unwrap() {
            bytes += (KEY_BYTES + value.len()) as u64;
            rows.advance();
        }
        bytes
    });
    let sizes: Vec<_> = sizes.collect();
    // The last part has what is left.
    let (last, sizes) = sizes.split_last().unwrap();
    assert!(*last <= BYTES, "{last}");
    assert!(sizes.iter().all(|bytes| (BYTES / 2..BYTES * 3 / 2).contains(bytes)), "{sizes:?}");
}
