//! Rows as NDJSON: an object per row, its members in the order of the requested columns. pid and spreadid are
//! numbers, props are an object, empty values are null, all else is a string; amounts too, so that no reader rounds
//! them.

use std::io::Write;

use attribution::rules::policy::Policy;
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::columns::prop::PropValues;
use super::columns::value::Value;
use super::time::writer::TimeWriter;
use crate::format::columns::field::Field;
use crate::query::ExportQuery;

#[derive(Debug)]
pub(crate) struct NdjsonWriter<'a> {
    fields: &'a [Field],
    /// The bytes before each value: `{` or a comma, the name, a colon.
    names: Vec<Vec<u8>>,
    times: TimeWriter,
    policy: &'a Policy,
    props: PropValues,
}

impl<'a> NdjsonWriter<'a> {
    pub fn new(query: &'a ExportQuery, policy: &'a Policy) -> Self {
        let names = query.fields.iter().enumerate().map(|(index, field)| {
            let mut name = vec![if index == 0 { b'{' } else { b',' }];
            write_text(&field.name(), &mut name);
            name.push(b':');
            name
        });
        let times = TimeWriter::new(&query.zone);
        let props = PropValues::new(&query.fields);
        Self { fields: &query.fields, names: names.collect(), times, policy, props }
    }

    pub fn row(&mut self, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        self.props.read(row);
        let mut props = self.props.in_order();
        for (field, name) in self.fields.iter().zip(&self.names) {
            out.extend_from_slice(name);
            match Value::of(field, key, row, self.policy, &mut props) {
                Value::Empty => out.extend_from_slice(b"null"),
                Value::Name(name) => write_text(name, out),
                Value::Number(number) => {
                    // Writing to memory cannot fail.
                    let _ = write!(out, "{number}");
                }
                Value::Time(time) => {
                    out.push(b'"');
                    self.times.write(time, out);
                    out.push(b'"');
                }
                Value::Decimal(text) => write_text(text, out),
                Value::Text(text) => write_text(&text, out),
                Value::Json(json) => out.extend_from_slice(json.as_bytes()),
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}
