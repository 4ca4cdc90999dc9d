//! Table schemas.

use bytes::Bytes;

use crate::error::Error;
use crate::names::TableName;
use crate::proto::common::{BytesBytesPair, ColumnFamilySchema, NameStringPair, TableSchema};

type Pairs = Vec<(String, String)>;

/// A table schema: name, families, attributes and configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    pub name: String,
    pub families: Vec<Family>,
    /// Attributes such as `NORMALIZATION_ENABLED`.
    pub attributes: Pairs,
    pub configuration: Pairs,
}

/// A column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub name: String,
    /// Attributes such as `COMPRESSION`, `DATA_BLOCK_ENCODING`, `TTL` (seconds), `VERSIONS`.
    pub attributes: Pairs,
    /// Settings such as `RowPrefixBloomFilter.prefix_length`.
    pub configuration: Pairs,
}

impl TableSpec {
    pub fn new(name: impl Into<String>) -> Self {
        let (families, attributes, configuration) = Default::default();
        Self { name: name.into(), families, attributes, configuration }
    }

    pub fn family(mut self, family: Family) -> Self {
        self.families.push(family);
        self
    }

    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }

    pub fn configuration(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configuration.push((name.into(), value.into()));
        self
    }

    pub(crate) fn to_proto(&self) -> Result<TableSchema, Error> {
        let name: TableName = self.name.parse()?;
        if self.families.is_empty() {
            return Err(Error::input(format!("table {name} needs at least one family")));
        }
        Ok(TableSchema {
            table_name: Some(name.to_proto()),
            attributes: bytes_pairs(&self.attributes),
            column_families: self.families.iter().map(Family::to_proto).collect(),
            configuration: string_pairs(&self.configuration),
        })
    }

    pub(crate) fn from_proto(schema: &TableSchema) -> Option<Self> {
        Some(Self {
            name: TableName::from_proto(schema.table_name.as_ref()?)?.to_string(),
            families: schema.column_families.iter().map(Family::from_proto).collect(),
            attributes: from_bytes_pairs(&schema.attributes),
            configuration: from_string_pairs(&schema.configuration),
        })
    }
}

impl Family {
    pub fn new(name: impl Into<String>) -> Self {
        let (attributes, configuration) = Default::default();
        Self { name: name.into(), attributes, configuration }
    }

    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }

    pub fn configuration(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configuration.push((name.into(), value.into()));
        self
    }

    /// Returns the value of an attribute.
    pub fn value(&self, attribute: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(name, _)| name == attribute);
        found.map(|(_, value)| value.as_str())
    }

    fn to_proto(&self) -> ColumnFamilySchema {
        ColumnFamilySchema {
            name: Bytes::copy_from_slice(self.name.as_bytes()),
            attributes: bytes_pairs(&self.attributes),
            configuration: string_pairs(&self.configuration),
        }
    }

    fn from_proto(schema: &ColumnFamilySchema) -> Self {
        Self {
            name: text(&schema.name),
            attributes: from_bytes_pairs(&schema.attributes),
            configuration: from_string_pairs(&schema.configuration),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bytes_pairs(pairs: &Pairs) -> Vec<BytesBytesPair> {
    let bytes = |text: &String| Bytes::copy_from_slice(text.as_bytes());
    pairs
        .iter()
        .map(|(name, value)| BytesBytesPair { first: bytes(name), second: bytes(value) })
        .collect()
}

fn string_pairs(pairs: &Pairs) -> Vec<NameStringPair> {
    let pair = |(name, value): &(String, String)| NameStringPair {
        name: name.clone(),
        value: value.clone(),
    };
    pairs.iter().map(pair).collect()
}

fn from_bytes_pairs(pairs: &[BytesBytesPair]) -> Pairs {
    pairs.iter().map(|pair| (text(&pair.first), text(&pair.second))).collect()
}

fn from_string_pairs(pairs: &[NameStringPair]) -> Pairs {
    pairs.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_survives_a_round_trip() {
        let family = Family::new("d")
            .attribute("VERSIONS", "1")
            .configuration("RowPrefixBloomFilter.prefix_length", "6");
        let spec = TableSpec::new("ns:t")
            .family(family)
            .attribute("NORMALIZATION_ENABLED", "false")
            .configuration("a", "b");
        let back = TableSpec::from_proto(&spec.to_proto().unwrap()).unwrap();
        assert_eq!(back, spec);
        assert_eq!(back.families[0].value("VERSIONS"), Some("1"));
    }

    #[test]
    fn table_without_a_family_or_a_valid_name_is_rejected() {
        assert!(TableSpec::new("t").to_proto().is_err());
        assert!(TableSpec::new("a b").family(Family::new("d")).to_proto().is_err());
    }
}
