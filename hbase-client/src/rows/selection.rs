//! Selects the cells of a row to read.

use std::ops::Range;

use bytes::Bytes;

use prost::Message;

use crate::proto::data::{Column, ColumnRangeFilter, Filter};

/// The families, columns and versions to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub(crate) columns: Vec<Column>,
    pub(crate) versions: u32,
    pub(crate) columns_between: Option<Range<Bytes>>,
    pub(crate) columns_max: Option<u32>,
}

impl Selection {
    /// Selects the latest version of all columns.
    pub fn all() -> Self {
        Self { columns: Vec::new(), versions: 1, columns_between: None, columns_max: None }
    }

    /// Adds a family. Without any added family or column, all are selected.
    pub fn family(mut self, family: impl Into<Bytes>) -> Self {
        let column = self.family_column(family.into());
        // Without qualifiers, the whole family is read.
        column.qualifier.clear();
        self
    }

    /// Adds a column. Without any added family or column, all are selected.
    pub fn column(mut self, family: impl Into<Bytes>, qualifier: impl Into<Bytes>) -> Self {
        let family = family.into();
        let is_whole = self.columns.iter().any(|c| c.family == family && c.qualifier.is_empty());
        if !is_whole {
            let qualifier = qualifier.into();
            self.family_column(family).qualifier.push(qualifier);
        }
        self
    }

    /// Limits the selection to columns in this range, in byte order.
    pub fn columns_between(mut self, range: Range<impl Into<Bytes>>) -> Self {
        self.columns_between = Some(range.start.into()..range.end.into());
        self
    }

    /// Limits the selection to the first columns of each family: this number of the selected ones.
    pub fn columns_max(mut self, columns: u32) -> Self {
        self.columns_max = Some(columns);
        self
    }

    /// Selects this number of versions of each column, the latest first.
    pub fn versions(mut self, versions: u32) -> Self {
        self.versions = versions.max(1);
        self
    }

    pub(crate) fn filter(&self) -> Option<Filter> {
        let range = self.columns_between.as_ref()?;
        let filter = ColumnRangeFilter {
            min_column: Some(range.start.clone()),
            min_column_inclusive: Some(true),
            max_column: Some(range.end.clone()),
            max_column_inclusive: Some(false),
        };
        Some(Filter {
            name: "org.apache.hadoop.hbase.filter.ColumnRangeFilter".to_owned(),
            serialized_filter: Some(filter.encode_to_vec().into()),
        })
    }

    fn family_column(&mut self, family: Bytes) -> &mut Column {
        let index = self.columns.iter().position(|column| column.family == family);
        let index = index.unwrap_or_else(|| {
            self.columns.push(Column { family, qualifier: Vec::new() });
            self.columns.len() - 1
        });
        &mut self.columns[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(selection: &Selection) -> Vec<(&[u8], usize)> {
        selection.columns.iter().map(|c| (&c.family[..], c.qualifier.len())).collect()
    }

    #[test]
    fn columns_are_grouped_by_family_and_included_in_a_whole_family() {
        let columns = Selection::all().column("a", "1").column("a", "2").column("b", "1");
        assert_eq!(shown(&columns), [(&b"a"[..], 2), (b"b", 1)]);
        let whole = columns.family("a").column("a", "3");
        assert_eq!(shown(&whole), [(&b"a"[..], 0), (b"b", 1)]);
        assert!(Selection::all().columns.is_empty());
    }
}
