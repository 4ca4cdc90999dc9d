//! Catalogue files with campaigns as CSV: a header with the names of columns, and a campaign per record.

use csv::{ErrorKind, StringRecord, Trim};

use crate::nearest::nearest;
use crate::parse::error::{ConfigError, Location};
use crate::parse::tree::{Node, SourceFile, Table, Value, quoted};

const CAMPAIGNS: &str = "campaigns";
const ATTRIBUTION: &str = "attribution";

/// The columns that every file must have.
const REQUIRED: [&str; 3] = ["spreadid", "pid", "channel"];

/// How the cells of a column become settings of the campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    /// A text of the table `attribution`.
    Window,
}

const COLUMNS: [(&str, Kind); 8] = [
    ("spreadid", Kind::Number),
    ("pid", Kind::Number),
    ("channel", Kind::Text),
    ("name", Kind::Text),
    ("click_window", Kind::Window),
    ("click_probabilistic_window", Kind::Window),
    ("impression_window", Kind::Window),
    ("impression_probabilistic_window", Kind::Window),
];

/// Parses the text of a file into a list of campaigns; returns all errors of its form.
pub(super) fn parse(path: &str, bytes: &[u8]) -> Result<Table, Vec<ConfigError>> {
    let file = SourceFile::new(path, bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let problem = "not UTF-8 text: a spreadsheet must save it as \"CSV UTF-8\"";
        vec![csv_error(file.location(error.valid_up_to()), problem)]
    })?;
    let mut reader = csv::ReaderBuilder::new().trim(Trim::Headers).from_reader(bytes);
    let start = file.location(0);
    let header =
        reader.headers().map_err(|error| vec![csv_error(start.clone(), &error.to_string())])?;
    let columns = columns(header, &start)?;
    let (mut campaigns, mut errors) = (Vec::new(), Vec::new());
    for record in reader.into_records() {
        let mut record = match record {
            Ok(record) => record,
            Err(error) => {
                errors.push(record_error(&file, bytes, &error));
                continue;
            }
        };
        let offset = record.position().map_or(0, |position| position.byte());
        let location = file.location(first_byte(bytes, offset));
        // Before cells are trimmed: without its closing quote, a cell goes on to the next quote or the end of the file.
        if record.iter().any(|cell| cell.contains(['\r', '\n'])) {
            let problem = "expected no line break in a cell: a closing quote may be missing";
            errors.push(csv_error(location, problem));
            continue;
        }
        record.trim();
        // A spreadsheet writes empty rows below the last one.
        if !record.iter().all(str::is_empty) {
            campaigns.push(campaign(&columns, &record, location));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let list = Node { location: start, value: Value::List(campaigns) };
    Ok(Table::from([(CAMPAIGNS.to_owned(), list)]))
}

/// Returns the columns in the order of the header.
fn columns(
    header: &StringRecord,
    location: &Location,
) -> Result<Vec<(&'static str, Kind)>, Vec<ConfigError>> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for name in header {
        match COLUMNS.into_iter().find(|(known, _)| *known == name) {
            Some(column) if found.contains(&column) => {
                errors.push(format!("column {}: expected once", quoted(name)));
            }
            Some(column) => found.push(column),
            None => {
                let nearest = nearest(name, COLUMNS.map(|(known, _)| known)).unwrap_or_default();
                let name = quoted(name);
                errors.push(format!("column {name}: unknown, the nearest known one is: {nearest}"));
            }
        }
    }
    for name in REQUIRED {
        if found.iter().all(|(known, _)| *known != name) {
            let names = COLUMNS.map(|(known, _)| known).join(", ");
            errors.push(format!(
                "column \"{name}\": missing, expected a header with some of {names}"
            ));
        }
    }
    if errors.is_empty() {
        return Ok(found);
    }
    Err(errors.iter().map(|problem| csv_error(location.clone(), problem)).collect())
}

/// Returns the campaign of a record. An empty cell leaves its setting out.
fn campaign(columns: &[(&str, Kind)], record: &StringRecord, location: Location) -> Node {
    let (mut campaign, mut windows) = (Table::new(), Table::new());
    for ((name, kind), cell) in columns.iter().zip(record).filter(|(_, cell)| !cell.is_empty()) {
        let (table, value) = match kind {
            Kind::Number => (&mut campaign, number(cell)),
            Kind::Text => (&mut campaign, Value::Text(cell.to_owned())),
            Kind::Window => (&mut windows, Value::Text(cell.to_owned())),
        };
        table.insert((*name).to_owned(), Node { location: location.clone(), value });
    }
    if !windows.is_empty() {
        let windows = Node { location: location.clone(), value: Value::Table(windows) };
        campaign.insert(ATTRIBUTION.to_owned(), windows);
    }
    Node { location, value: Value::Table(campaign) }
}

/// Another text is an error, which is reported when it is read.
fn number(cell: &str) -> Value {
    cell.parse::<i128>().map_or_else(|_| Value::Text(cell.to_owned()), Value::Integer)
}

fn record_error(file: &SourceFile, bytes: &[u8], error: &csv::Error) -> ConfigError {
    let offset = error.position().map_or(0, |position| position.byte());
    let location = file.location(first_byte(bytes, offset));
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let problem = format!(
                "expected {expected_len} cells as in the header, found {len}: quote a cell that contains a comma"
            );
            csv_error(location, &problem)
        }
        _ => csv_error(location, &error.to_string()),
    }
}

/// The first byte of a record: the reader also counts the line breaks before it.
fn first_byte(bytes: &[u8], offset: u64) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let line_breaks = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    start + line_breaks.count()
}

fn csv_error(location: Location, problem: &str) -> ConfigError {
    ConfigError::Csv { location, problem: problem.into() }
}
