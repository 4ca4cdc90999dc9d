//! Which cells of a row are read.

use std::ops::Range;

use bytes::Bytes;

use prost::Message;

use crate::proto::data::{Column, ColumnRangeFilter, Filter};

/// All cells, or those of some families and columns, of some versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    pub(crate) columns: Vec<Column>,
    pub(crate) versions: u32,
    pub(crate) columns_between: Option<Range<Bytes>>,
    pub(crate) columns_max: Option<u32>,
}

impl Eq for Selection {}

impl Default for Selection {
    fn default() -> Self {
        Self::all()
    }
}

impl Selection {
    /// The latest version of each column.
    pub fn all() -> Self {
        Self { columns: Vec::new(), versions: 1, columns_between: None, columns_max: None }
    }

    /// Only this family, and others that are named.
    pub fn family(mut self, family: impl Into<Bytes>) -> Self {
        let column = self.of_family(family.into());
        // No qualifier: all of them.
        column.qualifier.clear();
        self
    }

    /// Only this column, and others that are named.
    pub fn column(mut self, family: impl Into<Bytes>, qualifier: impl Into<Bytes>) -> Self {
        let family = family.into();
        let is_whole = self.columns.iter().any(|c| c.family == family && c.qualifier.is_empty());
        if !is_whole {
            let qualifier = qualifier.into();
            self.of_family(family).qualifier.push(qualifier);
        }
        self
    }

    /// Only columns from `range.start` on and before `range.end`, by the order of their bytes.
    pub fn columns_between(mut self, range: Range<impl Into<Bytes>>) -> Self {
        self.columns_between = Some(range.start.into()..range.end.into());
        self
    }

    /// Of each family the first so many columns of those that are selected.
    pub fn columns_max(mut self, columns: u32) -> Self {
        self.columns_max = Some(columns);
        self
    }

    /// So many versions of each column.
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

    fn of_family(&mut self, family: Bytes) -> &mut Column {
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
    fn families_and_columns_are_gathered() {
        let columns = Selection::all().column("a", "1").column("a", "2").column("b", "1");
        assert_eq!(shown(&columns), [(&b"a"[..], 2), (b"b", 1)]);
        let whole = columns.family("a").column("a", "3");
        assert_eq!(shown(&whole), [(&b"a"[..], 0), (b"b", 1)]);
        assert!(Selection::all().columns.is_empty());
    }
}
