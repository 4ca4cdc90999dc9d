//! Writes rows in the requested format.

use attribution::rules::policy::Policy;
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::csv::CsvWriter;
use super::excel::ExcelWriter;
use super::ndjson::NdjsonWriter;
use crate::query::{Dialect, ExportQuery, Format};

#[derive(Debug)]
pub(crate) enum RowWriter<'a> {
    Csv(CsvWriter<'a>),
    Excel(ExcelWriter<'a>),
    Ndjson(NdjsonWriter<'a>),
}

impl<'a> RowWriter<'a> {
    pub fn new(query: &'a ExportQuery, policy: &'a Policy) -> Self {
        match (query.format, query.dialect) {
            (Format::Ndjson, _) => Self::Ndjson(NdjsonWriter::new(query, policy)),
            (Format::Csv, Dialect::Data) => Self::Csv(CsvWriter::new(query, policy)),
            (Format::Csv, Dialect::Excel) => Self::Excel(ExcelWriter::new(query, policy)),
        }
    }

    /// Appends what precedes the first row.
    pub fn header(&self, out: &mut Vec<u8>) {
        match self {
            Self::Csv(writer) => writer.header(out),
            Self::Excel(writer) => writer.header(out),
            Self::Ndjson(_) => {}
        }
    }

    /// Appends the line of a row.
    #[inline]
    pub fn row(&mut self, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Csv(writer) => writer.row(key, row, out),
            Self::Excel(writer) => writer.row(key, row, out),
            Self::Ndjson(writer) => writer.row(key, row, out),
        }
    }
}
