//! Key-value pairs of an event: its ids as received, its parameters or its properties.

use std::slice::Iter;

use crate::encoding::CheckedBytes;

/// Key-value pairs, sorted by key. Each key occurs once, except that an id with several values has a pair for each.
pub type Pairs = Vec<(Box<str>, Box<str>)>;

/// Iterates over key-value pairs, in their order.
#[derive(Debug, Clone)]
pub struct TextPairs<'a>(Source<'a>);

#[derive(Debug, Clone)]
enum Source<'a> {
    Pairs(Iter<'a, (Box<str>, Box<str>)>),
    Encoded { left: u64, texts: CheckedBytes<'a> },
}

impl<'a> TextPairs<'a> {
    /// Reads the number of pairs, and then the pairs.
    pub(super) fn encoded(mut bytes: CheckedBytes<'a>) -> Self {
        Self(Source::Encoded { left: bytes.varint(), texts: bytes })
    }
}

impl<'a> From<&'a Pairs> for TextPairs<'a> {
    fn from(pairs: &'a Pairs) -> Self {
        Self(Source::Pairs(pairs.iter()))
    }
}

impl<'a> Iterator for TextPairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Pairs(pairs) => pairs.next().map(|(key, value)| (&**key, &**value)),
            Source::Encoded { left, texts } => {
                *left = left.checked_sub(1)?;
                Some((texts.text(), texts.text()))
            }
        }
    }
}

/// Size of a pair without its texts: two pointers with lengths, and what an allocator adds to two small texts.
const PAIR_BYTES: usize = 64;

/// Returns the approximate size in memory.
pub(crate) fn pairs_bytes(pairs: &Pairs) -> usize {
    pairs.iter().map(|(key, value)| PAIR_BYTES + key.len() + value.len()).sum()
}

/// Returns the approximate size in memory of the normalised forms of received ids. A value with commas contains several
/// ids.
pub(crate) fn normalised_bytes(ids: TextPairs<'_>) -> usize {
    ids.map(|(_, value)| PAIR_BYTES * value.split(',').count()).sum()
}

/// Returns the value of a key; empty if the key is absent.
pub fn value<'a>(pairs: impl Into<TextPairs<'a>>, key: &str) -> &'a str {
    pairs.into().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
}

/// Sorts by key. A repeated key keeps its last value, as in JSON parsers.
pub fn sort_pairs<K: Ord, V>(pairs: &mut Vec<(K, V)>) {
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs.reverse();
    pairs.dedup_by(|a, b| a.0 == b.0);
    pairs.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_keeps_its_last_value() {
        let mut pairs = vec![("b", "1"), ("a", "2"), ("b", "3"), ("b", "4")];
        sort_pairs(&mut pairs);
        assert_eq!(pairs, [("a", "2"), ("b", "4")]);
    }
}
