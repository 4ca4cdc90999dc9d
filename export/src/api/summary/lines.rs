//! The lines of a summary, written piece by piece while the response is sent. Their text may be much longer than the
//! groups: it repeats names, and JSON escapes them.

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use serde::ser::{Serialize, Serializer};
use store::layout::decimal_sum::Amount;
use store::layout::summary_counts::Totals;

use super::dimension::{Dimension, Value};
use crate::format::csv::cell::write_text;
use crate::format::excel::{BYTE_ORDER_MARK, write_guarded};
use crate::format::time::writer::{date, in_utc};
use crate::query::{Dialect, ExportQuery};

/// A piece ends with the line that reaches this size.
const PIECE_BYTES: usize = 64 << 10;

/// A group and one of its currencies.
#[derive(Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub values: Box<[Value]>,
    pub currency: Arc<str>,
}

/// The groups, sorted, of which the first are written.
pub(super) struct Lines {
    by: Vec<Dimension>,
    sums: Vec<(GroupKey, Totals)>,
    next: usize,
    /// In JSON, the current group has an amount.
    has_amount: bool,
}

/// The body of a response.
pub(super) struct SummaryBody {
    /// What precedes the lines, until it is written.
    beginning: Vec<u8>,
    lines: Lines,
    /// The dialect of CSV; `None` for JSON.
    csv: Option<Dialect>,
    is_ended: bool,
}

/// The members of a JSON document before its groups.
#[derive(serde::Serialize)]
struct Head<'a> {
    app: &'a str,
    from: String,
    to: String,
    timezone: &'a str,
    by: Vec<&'static str>,
}

impl SummaryBody {
    /// Writes a line for each group and currency: its dimensions, currency, rows, revenue.
    pub fn csv(dialect: Dialect, lines: Lines) -> Self {
        let mut beginning = match dialect {
            Dialect::Data => Vec::new(),
            Dialect::Excel => BYTE_ORDER_MARK.to_vec(),
        };
        for by in &lines.by {
            beginning.extend_from_slice(by.name().as_bytes());
            beginning.push(b',');
        }
        beginning.extend_from_slice(b"currency,count,revenue");
        beginning.extend_from_slice(line_end(dialect));
        Self { beginning, lines, csv: Some(dialect), is_ended: false }
    }

    /// Writes one document: the query, then the groups.
    pub fn json(app_key: &str, query: &ExportQuery, lines: Lines) -> Self {
        let head = Head {
            app: app_key,
            from: in_utc(query.from),
            to: in_utc(query.to),
            timezone: query.zone.name(),
            by: lines.by.iter().map(|by| by.name()).collect(),
        };
        let mut beginning = Vec::new();
        write_json(&head, &mut beginning);
        // The object has one more member.
        beginning.pop();
        beginning.extend_from_slice(b",\"groups\":[");
        Self { beginning, lines, csv: None, is_ended: false }
    }

    pub fn next_piece(&mut self) -> Option<Vec<u8>> {
        if self.is_ended {
            return None;
        }
        let mut piece = std::mem::take(&mut self.beginning);
        while piece.len() < PIECE_BYTES && !self.lines.is_written() {
            match self.csv {
                Some(dialect) => self.lines.write_csv(dialect, &mut piece),
                None => self.lines.write_json(&mut piece),
            }
            self.lines.next += 1;
        }
        self.is_ended = self.lines.is_written();
        if self.is_ended && self.csv.is_none() {
            piece.extend_from_slice(b"]}");
        }
        Some(piece)
    }
}

impl http_body::Body for SummaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().next_piece().map(|piece| Ok(Frame::data(piece.into()))))
    }
}

impl Lines {
    pub fn new(by: &[Dimension], sums: Vec<(GroupKey, Totals)>) -> Self {
        Self { by: by.to_vec(), sums, next: 0, has_amount: false }
    }

    fn is_written(&self) -> bool {
        self.next >= self.sums.len()
    }

    fn write_csv(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let Some((key, sum)) = self.sums.get(self.next) else { return };
        let write_cell: fn(&str, &mut Vec<u8>) = match dialect {
            Dialect::Data => write_text,
            Dialect::Excel => write_guarded,
        };
        for value in &key.values {
            match value {
                Value::Text(text) => write_cell(text, out),
                // Names and digits of adtrail.
                Value::Day(day) => out.extend_from_slice(date(*day).to_string().as_bytes()),
                Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
                Value::Name(name) => out.extend_from_slice(name.as_bytes()),
            }
            out.push(b',');
        }
        write_cell(&key.currency, out);
        // Writing to memory cannot fail.
        let _ = write!(out, ",{},{}", sum.rows, sum.revenue);
        out.extend_from_slice(line_end(dialect));
    }

    /// Appends the next currency of a group, and what precedes or follows the currencies if it is the first or the
    /// last. A group is an object: its dimensions, then its rows and its revenue by currency.
    fn write_json(&mut self, out: &mut Vec<u8>) {
        let Some((key, sum)) = self.sums.get(self.next) else { return };
        let is_of_group = |(other, _): &&(GroupKey, Totals)| other.values == key.values;
        let before = self.next.checked_sub(1).and_then(|before| self.sums.get(before));
        if before.filter(is_of_group).is_none() {
            let beginning: &[u8] = if self.next == 0 { b"{" } else { b",{" };
            out.extend_from_slice(beginning);
            for (by, value) in self.by.iter().zip(&key.values) {
                write_json(by.name(), out);
                out.push(b':');
                write_json(value, out);
                out.push(b',');
            }
            let group = self.sums.iter().skip(self.next).take_while(is_of_group);
            let count: i64 = group.map(|(_, sum)| sum.rows).sum();
            // Writing to memory cannot fail.
            let _ = write!(out, "\"count\":{count},\"revenue\":{{");
            self.has_amount = false;
        }
        // An amount without a currency is written only if it is not 0.
        if !key.currency.is_empty() || sum.revenue != Amount::default() {
            if self.has_amount {
                out.push(b',');
            }
            self.has_amount = true;
            write_json(&*key.currency, out);
            out.push(b':');
            // A text, so that no reader rounds it.
            write_json(&sum.revenue.to_string(), out);
        }
        if self.sums.get(self.next + 1).filter(is_of_group).is_none() {
            out.extend_from_slice(b"}}");
        }
    }
}

fn line_end(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::Data => b"\n",
        Dialect::Excel => b"\r\n",
    }
}

fn write_json(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    // Cannot fail: keys are strings, and it writes to memory.
    let _ = serde_json::to_writer(out, value);
}

impl Serialize for Value {
    /// A missing value is `null`.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Day(day) => to.serialize_str(&date(*day).to_string()),
            Self::Number(number) => to.serialize_u32(*number),
            Self::Name("") => to.serialize_none(),
            Self::Name(name) => to.serialize_str(name),
            Self::Text(text) if text.is_empty() => to.serialize_none(),
            Self::Text(text) => to.serialize_str(text),
        }
    }
}
