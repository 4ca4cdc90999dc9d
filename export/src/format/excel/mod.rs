//! Rows as CSV for Excel and LibreOffice: a byte order mark, CRLF, times that they recognise, and texts that stay
//! texts.
//!
//! A spreadsheet interprets each cell as if it were typed: `=…` becomes a formula, `00123` becomes 123, 20 digits
//! lose their last five, `1-2` becomes a date. A text that would begin a formula gets a leading apostrophe, and one
//! that could become a number or a date is written as `="…"`, which evaluates to the text itself, except in the first
//! column, where it gets an apostrophe. Signs after other list separators than the comma are guarded, too: see
//! [`guard`].

mod booleans;
mod guard;

use std::io::Write;

use attribution::rules::policy::Policy;
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use crate::appsflyer::column::is_heading;
use crate::format::columns::field::Field;
use crate::format::columns::prop::PropValues;
use crate::format::columns::value::Value;
use crate::format::csv::cell::{write_quoted, write_text};
use crate::format::time::writer::{TimeForm, TimeWriter};
use crate::query::ExportQuery;
use guard::{guarded, must_quote};

#[derive(Debug)]
pub(crate) struct ExcelWriter<'a> {
    fields: &'a [Field],
    times: TimeWriter,
    policy: &'a Policy,
    props: PropValues,
}

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'a> ExcelWriter<'a> {
    pub fn new(query: &'a ExportQuery, policy: &'a Policy) -> Self {
        let times = TimeWriter::in_form(&query.zone, TimeForm::Plain);
        let props = PropValues::new(&query.fields);
        Self { fields: &query.fields, times, policy, props }
    }

    pub fn header(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(BYTE_ORDER_MARK);
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match field {
                // Our own names are never numbers.
                Field::Column(column) => write_text(column.name(), out),
                Field::AppsFlyer(column) if is_heading(&column.heading) => {
                    write_text(&column.heading, out);
                }
                Field::AppsFlyer(_) | Field::Prop(_) => write_guarded(&field.name(), out),
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    pub fn row(&mut self, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.props.read(row);
        let mut props = self.props.in_order();
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match Value::of(field, key, row, self.policy, &mut props) {
                Value::Empty => {}
                Value::Name(text) => out.extend_from_slice(text.as_bytes()),
                Value::Number(number) => {
                    // Writing to memory cannot fail.
                    let _ = write!(out, "{number}");
                }
                Value::Time(time) => self.times.write(time, out),
                Value::Decimal(text) => write_decimal(text, out),
                Value::Text(text) => write_guarded(&text, out),
                Value::Json(text) => write_guarded(text, out),
            }
        }
        // Readers skip empty lines, so a single empty cell is quoted.
        if out.len() == start {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends an amount, guarded if it is not plain decimal digits.
fn write_decimal(text: &str, out: &mut Vec<u8>) {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        write_text(text, out);
    } else {
        write_guarded(text, out);
    }
}

/// Appends a text that stays a text in a spreadsheet, whatever its list separator is.
pub(crate) fn write_guarded(text: &str, out: &mut Vec<u8>) {
    let begins_line = out.is_empty() || out.ends_with(b"\n") || out.ends_with(BYTE_ORDER_MARK);
    let text = guarded(text, begins_line);
    if must_quote(&text) {
        write_quoted(text.as_bytes(), out);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_texts_are_quoted_as_csv() {
        let check = |text: &str, expected: &str| {
            let mut out = b"x,".to_vec();
            write_guarded(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x,{expected}"));
            for before in [&b""[..], b"x,y\r\n", BYTE_ORDER_MARK] {
                let mut out = before.to_vec();
                write_guarded(text, &mut out);
                assert!(!out[before.len()..].starts_with(b"="), "{text}");
                assert!(!out[before.len()..].starts_with(b"\"="), "{text}");
            }
        };
        check("00123", "\"=\"\"00123\"\"\"");
        check("6.1\"", "\"=\"\"6.1\"\"\"\"\"\"\"");
        check("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"");
        check("a,b", "\"a,b\"");
        check(";=1+1", "\";'=1+1\"");
        for separator in [";", "|", "\t", "\n", "\r"] {
            check(&format!("a{separator}b"), &format!("\"a{separator}b\""));
        }
    }

    #[test]
    fn only_amounts_are_numbers() {
        let check = |text, expected: &str| {
            let mut out = b"x,".to_vec();
            write_decimal(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x,{expected}"));
        };
        check("-9.99", "-9.99");
        check("-9.99+1", "'-9.99+1");
        check("1e3", "\"=\"\"1e3\"\"\"");
    }
}
