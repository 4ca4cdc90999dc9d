//! Fuzz target for rows: other libraries must be able to read every format of any stored row.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as Json;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::decimal_sum::Amount;
use store::layout::key::{KEY_BYTES, RowKey};

use super::CONFIG;
use crate::format::row_writer::RowWriter;
use crate::query::{ExportQuery, Format};

static QUERIES: LazyLock<Vec<ExportQuery>> = LazyLock::new(|| {
    let day = [("from", "2026-03-10"), ("to", "2026-03-10")];
    let requests: [(Format, &[(&str, &str)]); 6] = [
        (Format::Csv, &[]),
        (
            Format::Csv,
            &[("timezone", "America/New_York"), ("fields", "event_time,props.a,ua,props")],
        ),
        (Format::Csv, &[("preset", "appsflyer"), ("timezone", "Asia/Shanghai")]),
        (Format::Csv, &[("dialect", "excel")]),
        (Format::Ndjson, &[("timezone", "Europe/Berlin")]),
        (Format::Ndjson, &[("fields", "touch_callback,contributor1_params,contributor2_params")]),
    ];
    let parsed = requests.iter().map(|(format, more)| {
        ExportQuery::parse(*format, day.into_iter().chain(more.iter().copied()))
    });
    parsed.filter_map(Result::ok).collect()
});

/// The input is a row's key and value.
pub fn rows(input: &[u8]) {
    let (Some(config), Some((key, value))) = (&*CONFIG, input.split_first_chunk::<KEY_BYTES>())
    else {
        return;
    };
    let (Some(key), Ok(row)) = (RowKey::decode(key), RowView::decode(value)) else { return };
    assert_eq!(QUERIES.len(), 6);
    for query in QUERIES.iter() {
        let mut writer = RowWriter::new(query, &config.policy);
        let mut written = Vec::new();
        writer.row(&key, &row, &mut written);
        let text = std::str::from_utf8(&written).unwrap_or_default();
        assert!(!text.is_empty() && text.ends_with('\n'), "{written:?}");
        match query.format {
            // Props are written as stored, so they must be valid JSON.
            Format::Ndjson if has_valid_json(&row) => {
                let json: Option<Json> = serde_json::from_str(text).ok();
                assert!(json.is_some_and(|json| json.is_object()), "{text}");
                assert!(!text.trim_end_matches('\n').contains('\n'), "{text}");
            }
            // The row stores which texts need quotes.
            Format::Csv if has_valid_quotes(&row) => check_csv(&written, query.fields.len()),
            Format::Ndjson | Format::Csv => {}
        }
    }
}

fn has_valid_json(row: &RowView<'_>) -> bool {
    let is_json = |cell| {
        let text = row.text(cell);
        text.is_empty() || serde_json::from_str::<BTreeMap<String, String>>(text).is_ok()
    };
    let is_decimal = |cell| Amount::parse(row.text(cell)).is_some();
    let params = TextCell::CONTRIBUTORS.map(|[params, _]| params);
    is_json(TextCell::Props)
        && params.into_iter().all(is_json)
        && is_decimal(TextCell::Revenue)
        && is_decimal(TextCell::TouchLookback)
}

fn has_valid_quotes(row: &RowView<'_>) -> bool {
    TextCell::ALL
        .into_iter()
        .all(|cell| row.must_quote(cell) == row.text(cell).contains([',', '"', '\n', '\r']))
}

/// Checks for one record with a cell per column.
fn check_csv(written: &[u8], columns: usize) {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(written);
    let records: Vec<_> = reader.records().collect();
    let is_complete = matches!(&records[..], [Ok(record)] if record.len() == columns);
    assert!(is_complete, "{columns} columns: {}", String::from_utf8_lossy(written));
}
