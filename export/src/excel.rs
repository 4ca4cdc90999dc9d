//! Rows as CSV for Excel and LibreOffice: a byte order mark, lines that end with CRLF, times that
//! they read as times, and texts that stay the texts that they are.
//!
//! What a spreadsheet opens it reads cell by cell as a person's typing: `=…` becomes a formula,
//! `00123` 123, 20 digits lose their last five, `1-2` a date. A text that would begin a formula gets
//! an apostrophe before it, and one that would become a number or a date is written as `="…"`,
//! which gives just this text.

use std::io::Write;

use attribution::policy::Policy;
use store::codec::row::RowView;
use store::key::RowKey;

use crate::cell::write_text;
use crate::column::Field;
use crate::query::ExportQuery;
use crate::value::Value;
use crate::zone::{TimeForm, TimeWriter};

#[derive(Debug)]
pub(crate) struct ExcelWriter<'a> {
    fields: &'a [Field],
    times: TimeWriter,
    policy: &'a Policy,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// A text within a formula is no longer.
const FORMULA_TEXT_MAX: usize = 255;
/// Longer ones are no date with a month's name.
const DATE_MAX: usize = 20;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

impl<'a> ExcelWriter<'a> {
    pub fn new(query: &'a ExportQuery, policy: &'a Policy) -> Self {
        let times = TimeWriter::in_form(&query.zone, TimeForm::Plain);
        Self { fields: &query.fields, times, policy }
    }

    pub fn header(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(BYTE_ORDER_MARK);
        for (place, field) in self.fields.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            write_guarded(&field.name(), out);
        }
        out.extend_from_slice(b"\r\n");
    }

    pub fn row(&mut self, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for (place, field) in self.fields.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            match Value::of(field, key, row, self.policy) {
                Value::Empty => {}
                Value::Name(text) => out.extend_from_slice(text.as_bytes()),
                Value::Number(number) => {
                    // Writing to memory can not fail.
                    let _ = write!(out, "{number}");
                }
                Value::Time(time) => self.times.write(time, out),
                Value::Decimal(text) => write_decimal(text, out),
                Value::Text(text) => write_guarded(&text, out),
                Value::Json(text) => write_guarded(text, out),
            }
        }
        // One empty cell alone: readers would skip an empty line.
        if out.len() == start {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// A number, whatever somebody has sent.
fn write_decimal(text: &str, out: &mut Vec<u8>) {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        write_text(text, out);
    } else {
        write_guarded(text, out);
    }
}

fn write_guarded(text: &str, out: &mut Vec<u8>) {
    if begins_formula(text) {
        write_text(&format!("'{text}"), out);
    } else if is_converted(text) {
        match text.len() {
            ..=FORMULA_TEXT_MAX => write_text(&format!("=\"{text}\""), out),
            _ => write_text(&format!("'{text}"), out),
        }
    } else {
        write_text(text, out);
    }
}

/// The wide forms are taken for the others where East Asian text is typed.
fn begins_formula(text: &str) -> bool {
    text.starts_with([
        '=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    ])
}

/// Whether a spreadsheet would take it for a number, a date or a truth value.
fn is_converted(text: &str) -> bool {
    const OF_NUMBERS: &[u8] = b"0123456789.,:/-+eE%$ ()";
    let bytes = text.as_bytes();
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    if has_digit && bytes.iter().all(|byte| OF_NUMBERS.contains(byte)) {
        return true;
    }
    let lower = || text.to_ascii_lowercase();
    let is_month = || {
        let lower = lower();
        text.len() <= DATE_MAX && MONTHS.iter().any(|month| lower.contains(month))
    };
    (has_digit && is_month()) || matches!(&*lower(), "true" | "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        write_guarded(text, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn formulas_are_texts() {
        check("=1+1", "'=1+1");
        check("@SUM(A1)", "'@SUM(A1)");
        check("-2", "'-2");
        check("+49", "'+49");
        check("\tx", "'\tx");
        check("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0");
        check("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"");
        check("\u{ff1d}1", "'\u{ff1d}1");
        check("a=1", "a=1");
    }

    #[test]
    fn what_would_become_a_number_or_a_date_stays_a_text() {
        check("12345678901234567890", "\"=\"\"12345678901234567890\"\"\"");
        check("00123", "\"=\"\"00123\"\"\"");
        check("1e10", "\"=\"\"1e10\"\"\"");
        check("1.10", "\"=\"\"1.10\"\"\"");
        check("3/4", "\"=\"\"3/4\"\"\"");
        check("MAR-3", "\"=\"\"MAR-3\"\"\"");
        check("True", "\"=\"\"True\"\"\"");
        check(&"1".repeat(300), &format!("'{}", "1".repeat(300)));
        check("iPhone", "iPhone");
        check("9c6d1b84-2f6e", "9c6d1b84-2f6e");
        check("", "");
    }

    #[test]
    fn only_amounts_are_numbers() {
        let check = |text, expected: &str| {
            let mut out = Vec::new();
            write_decimal(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check("-9.99", "-9.99");
        check("-9.99+1", "'-9.99+1");
        check("1e3", "\"=\"\"1e3\"\"\"");
    }
}
