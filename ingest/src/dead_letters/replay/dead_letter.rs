//! Parses a dead letter: the original record, and whether that can be sent to its source topic.

use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message, OwnedHeaders};
use xxhash_rust::xxh3::Xxh3Default;

use crate::dead_letters::letter::header;
use crate::kafka::headers;
use crate::kafka::topics::{TopicKind, TopicNames};

/// Maximum length of an error code.
const CODE_CHARS_MAX: usize = 64;

/// Location and content of an original record. The content distinguishes it from a record at the same offset after its
/// topic was recreated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    pub topic: TopicKind,
    pub partition: i32,
    pub offset: i64,
    /// Hash of key and value.
    pub content: u64,
}

impl Source {
    /// Returns the source as a key of the journal.
    pub fn key(&self, names: &TopicNames) -> String {
        let Self { topic, partition, offset, content } = self;
        format!("{}/{partition}/{offset}/{content:016x}", names.of(*topic))
    }

    /// Parses a key of the journal; `None` if it is invalid or its topic is not one of the three.
    pub fn parse(key: &[u8], names: &TopicNames) -> Option<Self> {
        let mut parts = std::str::from_utf8(key).ok()?.split('/');
        let source = Self {
            topic: names.kind(parts.next()?)?,
            partition: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
            content: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        parts.next().is_none().then_some(source)
    }
}

/// A dead letter that can be sent.
pub struct DeadLetter {
    pub source: Source,
    pub code: String,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// The headers of the original record.
    pub headers: OwnedHeaders,
    /// Location of the letter itself.
    pub partition: i32,
    pub offset: i64,
}

/// Why a letter is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// It lacks the headers that adtrail adds.
    NotADeadLetter,
    /// It has no value, because the value was too large or unreadable.
    NoValue,
    /// Its source topic is not one of the three.
    OtherTopic,
    /// A header name is not UTF-8, so that it could not be sent unchanged.
    Headers,
    /// It exceeds the maximum record size of its source topic.
    TooLong,
}

impl SkipReason {
    pub fn description(self) -> &'static str {
        match self {
            Self::NotADeadLetter => "it lacks the headers of a dead letter",
            Self::NoValue => {
                "it has no value: the original is only in its source topic, too large or unreadable"
            }
            Self::OtherTopic => "its source topic is not configured",
            Self::Headers => "a header name is not UTF-8",
            Self::TooLong => "it is larger than max.message.bytes of its source topic",
        }
    }
}

impl DeadLetter {
    pub fn read(message: &BorrowedMessage<'_>, names: &TopicNames) -> Result<Self, SkipReason> {
        let all = headers::all(message).map_err(|headers::Unreadable| SkipReason::Headers)?;
        let (original, added) = split(all);
        let [topic, partition, offset, .., code] = added.map(|value| {
            value
                .and_then(|value| std::str::from_utf8(value).ok())
                .ok_or(SkipReason::NotADeadLetter)
        });
        let (partition, offset) = (number(partition?)?, number(offset?)?);
        let code = code?;
        let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if code.is_empty() || code.len() > CODE_CHARS_MAX || !code.chars().all(is_code) {
            return Err(SkipReason::NotADeadLetter);
        }
        let topic = names.kind(topic?).ok_or(SkipReason::OtherTopic)?;
        // Records without a value are not dead letters, so the letter lacks it.
        if message.payload().is_none() {
            return Err(SkipReason::NoValue);
        }
        let content = content(message.key(), message.payload());
        Ok(Self {
            source: Source { topic, partition, offset, content },
            code: code.to_owned(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: original.into_iter().fold(OwnedHeaders::new(), OwnedHeaders::insert),
            partition: message.partition(),
            offset: message.offset(),
        })
    }

    /// Returns the size of the original record, with its headers.
    pub fn bytes(&self) -> usize {
        let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let headers = self.headers.iter();
        let headers = headers.map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        len(&self.key) + len(&self.value) + headers.sum::<usize>()
    }
}

type Headers<'h> = Vec<Header<'h, &'h [u8]>>;

/// Returns the headers of the original record, and the values of those that adtrail added, in the order of
/// [`header::ALL`]. The last header of each name is the added one, because the original record may have had the same
/// names.
fn split(mut all: Headers<'_>) -> (Headers<'_>, [Option<&[u8]>; header::ALL.len()]) {
    let added = header::ALL.map(|name| {
        let last = all.iter().rposition(|header| header.key == name)?;
        all.remove(last).value
    });
    (all, added)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, SkipReason> {
    text.parse().map_err(|_| SkipReason::NotADeadLetter)
}

fn content(key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let mut hash = Xxh3Default::new();
    for part in [key, value] {
        // The length separates key and value.
        hash.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_parsed_from_its_key() {
        let names = TopicNames::of_settings();
        let source =
            Source { topic: TopicKind::Effects, partition: 3, offset: 1 << 40, content: 7 };
        let key = source.key(&names);
        assert_eq!(key, "kafka.effects/3/1099511627776/0000000000000007");
        assert_eq!(Source::parse(key.as_bytes(), &names), Some(source));
        for key in ["", "kafka.effects/3/1", "other/3/1/7", "kafka.effects/3/1/7/8", "a/b/c/d"] {
            assert_eq!(Source::parse(key.as_bytes(), &names), None, "{key}");
        }
        assert_eq!(Source::parse(b"\xff", &names), None);
    }

    #[test]
    fn the_last_header_of_each_name_is_the_added_one() {
        let header = |key, value: &'static [u8]| Header { key, value: Some(value) };
        let mut all = vec![header(header::CODE, b"own"), header("trace", b"1")];
        all.extend(header::ALL.map(|name| header(name, b"ours")));
        all.push(header("later", b"2"));
        let (original, added) = split(all);
        let original: Vec<_> = original.iter().map(|header| (header.key, header.value)).collect();
        let expected: [(&str, &[u8]); 3] =
            [(header::CODE, b"own"), ("trace", b"1"), ("later", b"2")];
        assert_eq!(original, expected.map(|(key, value)| (key, Some(value))));
        assert_eq!(added, [Some(&b"ours"[..]); 7]);
    }

    #[test]
    fn the_size_of_a_letter_includes_headers() {
        let header = |key, value: Option<&'static [u8]>| Header { key, value };
        let headers = [header("trace", Some(&[0; 1_000])), header("empty", None)];
        let letter = DeadLetter {
            source: Source { topic: TopicKind::Clicks, partition: 0, offset: 0, content: 0 },
            code: "bad_json".to_owned(),
            key: Some(vec![0; 10]),
            value: Some(vec![0; 100]),
            headers: headers.into_iter().fold(OwnedHeaders::new(), OwnedHeaders::insert),
            partition: 0,
            offset: 0,
        };
        assert_eq!(letter.bytes(), 10 + 100 + "traceempty".len() + 1_000);
    }

    #[test]
    fn different_contents_have_different_hashes() {
        let all = [
            content(None, None),
            content(Some(b""), None),
            content(None, Some(b"")),
            content(Some(b"a"), Some(b"b")),
            content(Some(b"ab"), Some(b"")),
            content(Some(b""), Some(b"ab")),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
