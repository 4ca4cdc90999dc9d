//! Entries of catalogue files.

use anyhow::Context as _;
use csv::{ReaderBuilder, Terminator, WriterBuilder};
use toml::Value;

use crate::cli::CatalogueFormat;
use crate::commands::UsageError;

/// The columns that are written, in the order of a new file.
const COLUMNS: [&str; 4] = ["spreadid", "pid", "channel", "name"];

/// A campaign to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub spreadid: u32,
    pub pid: u32,
    pub channel: Box<str>,
    /// May be empty.
    pub name: Box<str>,
}

/// Returns the text that adds the entries to the end of a file; `file` is its present text, empty for a new one.
pub fn added(format: CatalogueFormat, file: &str, entries: &[Entry]) -> anyhow::Result<String> {
    let line_break = if file.is_empty() || file.ends_with('\n') { "" } else { "\n" };
    let text = match format {
        CatalogueFormat::Toml => toml(file, entries),
        CatalogueFormat::Csv => csv(file, entries)?,
    };
    Ok(format!("{line_break}{text}"))
}

fn toml(file: &str, entries: &[Entry]) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let entry = |Entry { spreadid, pid, channel, name }: &Entry| {
        let channel = text(channel);
        let entry =
            format!("[[campaigns]]\nspreadid = {spreadid}\npid = {pid}\nchannel = {channel}\n");
        if name.is_empty() { entry } else { format!("{entry}name = {}\n", text(name)) }
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    let between = if file.is_empty() { "" } else { "\n" };
    format!("{between}{}", entries.join("\n"))
}

/// Rows have the columns of the file, or it gets a header.
fn csv(file: &str, entries: &[Entry]) -> anyhow::Result<String> {
    let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(file.as_bytes());
    let known = reader.headers()?;
    let columns: Vec<&str> =
        if known.is_empty() { COLUMNS.to_vec() } else { known.iter().collect() };
    if entries.iter().any(|entry| !entry.name.is_empty()) && !columns.contains(&"name") {
        let problem = "--out: the file has no column \"name\": add it to its header";
        return Err(UsageError(problem.to_owned()).into());
    }
    let terminator = if file.contains("\r\n") { Terminator::CRLF } else { Terminator::Any(b'\n') };
    let mut writer = WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
    if known.is_empty() {
        writer.write_record(&columns)?;
    }
    for Entry { spreadid, pid, channel, name } in entries {
        let (spreadid, pid) = (spreadid.to_string(), pid.to_string());
        let cell = |column: &&str| match *column {
            "spreadid" => &*spreadid,
            "pid" => &*pid,
            "channel" => &**channel,
            "name" => &**name,
            _ => "",
        };
        writer.write_record(columns.iter().map(cell))?;
    }
    let bytes = writer.into_inner().context("the entries cannot be written")?;
    String::from_utf8(bytes).context("the entries cannot be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(spreadid: u32, name: &str) -> Entry {
        Entry { spreadid, pid: 1, channel: "c".into(), name: name.into() }
    }

    #[track_caller]
    fn check(format: CatalogueFormat, file: &str, entries: &[Entry], expected: &str) {
        assert_eq!(added(format, file, entries).unwrap(), expected);
    }

    #[test]
    fn entries_of_toml_are_added_after_the_last_line() {
        let check = |file: &str, entries: &[Entry], expected: &str| {
            check(CatalogueFormat::Toml, file, entries, expected);
        };
        let eight = "[[campaigns]]\nspreadid = 8\npid = 1\nchannel = \"c\"\n";
        check("", &[entry(8, "")], eight);
        check("# x\n", &[entry(8, "")], &format!("\n{eight}"));
        check("# x", &[entry(8, "")], &format!("\n\n{eight}"));
        let nine = "[[campaigns]]\nspreadid = 9\npid = 1\nchannel = \"c\"\n";
        let named = format!("{nine}name = \"Spring\"\n");
        check("", &[entry(8, ""), entry(9, "Spring")], &format!("{eight}\n{named}"));
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        for name in ["Say \"hi\"", "'a'", "a\\b", "\u{6625} = 1 # x", "\"'"] {
            let text = added(CatalogueFormat::Toml, "", &[entry(8, name)]).unwrap();
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table["campaigns"][0]["name"].as_str(), Some(name));
        }
    }

    #[test]
    fn entries_of_csv_have_the_columns_of_the_file() {
        let check = |file: &str, entries: &[Entry], expected: &str| {
            check(CatalogueFormat::Csv, file, entries, expected);
        };
        check("", &[entry(8, "a,b")], "spreadid,pid,channel,name\n8,1,c,\"a,b\"\n");
        check("name,click_window,pid,channel,spreadid\n", &[entry(8, "n")], "n,,1,c,8\n");
        check("\u{feff}spreadid,pid,channel\r\n7,1,c", &[entry(8, "")], "\n8,1,c\r\n");
        let unnamed = "spreadid,pid,channel\n";
        let problem = added(CatalogueFormat::Csv, unnamed, &[entry(8, "n")]).unwrap_err();
        assert!(
            problem.is::<UsageError>() && problem.to_string().contains("\"name\""),
            "{problem}"
        );
    }
}
