//! Downloaded CSV, parsed with a library that adtrail does not use to write it.

use std::collections::BTreeMap;

/// A row's cells by column name.
pub type Row = BTreeMap<String, String>;

#[track_caller]
pub fn parse(text: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text);
    let names: Vec<String> =
        reader.headers().expect("the CSV has a header line").iter().map(str::to_owned).collect();
    let row = |record: csv::StringRecord| {
        let cells = record.iter().map(str::to_owned);
        names.iter().cloned().zip(cells).collect()
    };
    reader
        .into_records()
        .map(|record| row(record.expect("the row has one cell per column")))
        .collect()
}

/// Indexes the rows of an app by event id, which must be unique.
#[track_caller]
pub fn by_event_id(rows: Vec<Row>) -> BTreeMap<String, Row> {
    let mut by_id = BTreeMap::new();
    for row in rows {
        if let Some(other) = by_id.insert(row["event_id"].clone(), row) {
            panic!("two rows for one event: {other:?}");
        }
    }
    by_id
}
