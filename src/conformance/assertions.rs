//! Compares rows with the expectations of a case.

use csv::StringRecord;

use super::case::{Case, Expected, IDENTITY};

/// Returns the differences, in the order of the expectations.
pub(crate) fn differences(case: &Case, csv: &[u8]) -> Vec<String> {
    let rows = match Rows::parse(csv) {
        Ok(rows) => rows,
        Err(error) => return vec![format!("not CSV: {error}")],
    };
    let mut differences = Vec::new();
    if rows.records.len() != case.rows {
        differences.push(format!("rows: expected {}, found {}", case.rows, rows.records.len()));
    }
    for expected in &case.expect {
        differences.extend(rows.differences(expected));
    }
    differences
}

/// Returns a text with the first line in which an export differs from that of an earlier order.
pub(crate) fn first_difference(earlier: &[u8], csv: &[u8]) -> Option<String> {
    if earlier == csv {
        return None;
    }
    let (earlier, csv) = (String::from_utf8_lossy(earlier), String::from_utf8_lossy(csv));
    let (mut expected, mut found) = (earlier.lines(), csv.lines());
    for number in 1_u64.. {
        match (expected.next(), found.next()) {
            (None, None) => break,
            (expected, found) if expected == found => {}
            (expected, found) => {
                let [expected, found] = [expected, found].map(|line| line.unwrap_or("(no line)"));
                return Some(format!(
                    "line {number} differs from that of an earlier order: expected {expected:?}, found {found:?}"
                ));
            }
        }
    }
    Some("the line ends differ from those of an earlier order".into())
}

struct Rows {
    names: StringRecord,
    records: Vec<StringRecord>,
}

impl Rows {
    fn parse(csv: &[u8]) -> Result<Self, csv::Error> {
        let mut reader = csv::Reader::from_reader(csv);
        let names = reader.headers()?.clone();
        Ok(Self { names, records: reader.records().collect::<Result<_, _>>()? })
    }

    fn differences(&self, expected: &Expected) -> Vec<String> {
        let identity = || expected.columns.iter().filter(|(name, _)| IDENTITY.contains(&&***name));
        let has_identity =
            |row: &&StringRecord| identity().all(|(name, text)| self.cell(row, name) == Some(text));
        let rows: Vec<&StringRecord> = self.records.iter().filter(has_identity).collect();
        let id: Vec<&str> = identity().map(|(_, text)| text.as_str()).collect();
        let id = id.join(" ");
        let [row] = rows[..] else {
            return vec![format!("{id}: expected one row, found {}", rows.len())];
        };
        let difference = |(name, expected): (&String, &String)| match self.cell(row, name) {
            Some(found) if found == expected => None,
            Some(found) => Some(format!("{id}: {name}: expected {expected:?}, found {found:?}")),
            None => Some(format!("{id}: {name}: expected {expected:?}, found no such column")),
        };
        expected.columns.iter().filter_map(difference).collect()
    }

    fn cell<'a>(&self, row: &'a StringRecord, name: &str) -> Option<&'a str> {
        row.get(self.names.iter().position(|column| column == name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "event_id,event_type,status\na,activation,organic\na,effect,orphan\n";

    #[track_caller]
    fn check(rows: usize, expect: &[&[(&str, &str)]], found: &[&str]) {
        let expected = |columns: &&[(&str, &str)]| {
            let columns = columns.iter().map(|&(name, text)| (name.into(), text.into()));
            Expected { columns: columns.collect() }
        };
        let case = Case {
            name: "x".into(),
            settings: String::new(),
            events: Vec::new(),
            left_out: 0,
            rows,
            expect: expect.iter().map(expected).collect(),
        };
        assert_eq!(differences(&case, CSV.as_bytes()), found);
    }

    #[test]
    fn rows_are_found_by_their_identifying_columns_and_compared() {
        check(2, &[&[("event_id", "a"), ("event_type", "effect"), ("status", "orphan")]], &[]);
        check(1, &[], &["rows: expected 1, found 2"]);
        check(2, &[&[("event_id", "a")]], &["a: expected one row, found 2"]);
        check(2, &[&[("event_id", "b")]], &["b: expected one row, found 0"]);
        check(
            2,
            &[&[("event_id", "a"), ("event_type", "effect"), ("status", ""), ("spreadid", "7")]],
            &[
                r#"a effect: spreadid: expected "7", found no such column"#,
                r#"a effect: status: expected "", found "orphan""#,
            ],
        );
    }

    #[test]
    fn the_first_different_line_is_named() {
        let check = |other: &str, line: Option<&str>| {
            let difference = first_difference(CSV.as_bytes(), other.as_bytes());
            match (&difference, line) {
                (None, None) => {}
                (Some(found), Some(line)) => assert!(found.contains(line), "{found}"),
                _ => panic!("{difference:?}"),
            }
        };
        check(CSV, None);
        check("event_id,event_type,status\na,activation,organic\n", Some("line 3 "));
        check(&format!("{CSV}b\n"), Some("line 4 "));
        check(&CSV.replace('\n', "\r\n"), Some("the line ends"));
    }
}
