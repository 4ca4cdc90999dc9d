//! A dead letter: an invalid record with headers that name its origin and error.
//!
//! A letter that is too large to be sent is sent without the record's value, whose length and SHA-256 are then in
//! headers; if the rest is too large as well, without its key and headers.

use std::fmt::Write as _;

use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Message, OwnedHeaders};
use sha2::{Digest as _, Sha256};

use crate::consumer::read::batch::Source;
use crate::decode::DecodeError;
use crate::kafka::headers;
use crate::kafka::topics::TopicKind;

/// Maximum size of key, value and headers that are copied into a letter. It bounds the memory of letters, and is below
/// the limits of the producer and of the topics that adtrail creates.
pub const COPIED_BYTES_MAX: usize = 16 << 20;

/// The headers that a dead letter has in addition to those of the original record.
pub mod header {
    pub const TOPIC: &str = "__connect.errors.topic";
    pub const PARTITION: &str = "__connect.errors.partition";
    pub const OFFSET: &str = "__connect.errors.offset";
    pub const STAGE: &str = "__connect.errors.stage";
    pub const CLASS: &str = "__connect.errors.exception.class.name";
    pub const MESSAGE: &str = "__connect.errors.exception.message";
    pub const CODE: &str = "adtrail.error.code";
    pub const ALL: [&str; 7] = [TOPIC, PARTITION, OFFSET, STAGE, CLASS, MESSAGE, CODE];
    /// The length and the SHA-256 of a value that the letter lacks because it is too large.
    pub const VALUE_LENGTH: &str = "adtrail.value.length";
    pub const VALUE_SHA256: &str = "adtrail.value.sha256";
}

/// Which parts of the original record a letter is sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    All,
    WithoutValue,
    /// Neither key, value nor headers.
    None,
}

impl Parts {
    /// Returns the parts to try after a letter with these was too large.
    pub fn fewer(self) -> Option<Self> {
        match self {
            Self::All => Some(Self::WithoutValue),
            Self::WithoutValue => Some(Self::None),
            Self::None => None,
        }
    }
}

/// The value of the original record.
enum LetterValue {
    /// The record has no value, or it is unknown.
    None,
    Kept(Vec<u8>),
    /// Too large to be copied.
    Omitted(ValueDigest),
}

#[derive(Clone)]
struct ValueDigest {
    bytes: usize,
    sha256: String,
}

impl ValueDigest {
    fn of(value: &[u8]) -> Self {
        let mut sha256 = String::with_capacity(64);
        let digest: [u8; 32] = Sha256::digest(value).into();
        for byte in digest {
            // Writing to a string cannot fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        Self { bytes: value.len(), sha256 }
    }
}

/// A record that could not be decoded or read.
pub struct DeadLetter {
    /// The topic of the original record.
    pub topic: TopicKind,
    /// The code of the error.
    pub code: &'static str,
    key: Option<Vec<u8>>,
    value: LetterValue,
    /// The headers of the original record.
    original: OwnedHeaders,
    origin: [(&'static str, String); header::ALL.len()],
}

impl DeadLetter {
    /// Copies the record, as far as it fits; `name` is the name of its topic.
    pub fn new(
        message: &BorrowedMessage<'_>,
        source: Source,
        name: &str,
        error: &DecodeError,
    ) -> Self {
        let value = message.payload().unwrap_or_default();
        let rest_bytes = rest_bytes(message);
        let mut letter = Self::of_unread(source, name, error);
        if rest_bytes <= COPIED_BYTES_MAX {
            letter.key = message.key().map(<[u8]>::to_vec);
            // Copied as a whole, because reading single headers panics if a name is not UTF-8.
            letter.original = message.headers().map(BorrowedHeaders::detach).unwrap_or_default();
        }
        if rest_bytes + value.len() <= COPIED_BYTES_MAX {
            letter.value = message
                .payload()
                .map_or(LetterValue::None, |value| LetterValue::Kept(value.to_vec()));
        } else {
            letter.value = LetterValue::Omitted(ValueDigest::of(value));
        }
        letter
    }

    /// Returns the letter of a record that cannot be read: it has only its origin and error.
    pub fn of_unread(source: Source, name: &str, error: &DecodeError) -> Self {
        let code = error.code.name();
        let origin = [
            (header::TOPIC, name.to_owned()),
            (header::PARTITION, source.partition.to_string()),
            (header::OFFSET, source.offset.to_string()),
            (header::STAGE, "VALUE_CONVERTER".to_owned()),
            (header::CLASS, format!("adtrail.{code}")),
            (header::MESSAGE, error.message.clone()),
            (header::CODE, code.to_owned()),
        ];
        let (key, value, original) = (None, LetterValue::None, OwnedHeaders::new());
        Self { topic: source.topic, code, key, value, original, origin }
    }

    pub fn key(&self, parts: Parts) -> Option<&[u8]> {
        self.key.as_deref().filter(|_| parts != Parts::None)
    }

    pub fn value(&self, parts: Parts) -> Option<&[u8]> {
        match &self.value {
            LetterValue::Kept(value) if parts == Parts::All => Some(value),
            _ => None,
        }
    }

    pub fn headers(&self, parts: Parts) -> OwnedHeaders {
        let original =
            if parts == Parts::None { OwnedHeaders::new() } else { self.original.clone() };
        let headers = self.origin.iter().fold(original, |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let omitted = match &self.value {
            LetterValue::Omitted(digest) => digest.clone(),
            LetterValue::Kept(value) if parts != Parts::All => ValueDigest::of(value),
            LetterValue::Kept(_) | LetterValue::None => return headers,
        };
        let length = omitted.bytes.to_string();
        headers
            .insert(Header { key: header::VALUE_LENGTH, value: Some(&length) })
            .insert(Header { key: header::VALUE_SHA256, value: Some(&omitted.sha256) })
    }

    #[cfg(test)]
    pub fn of_value(topic: TopicKind, value: &[u8]) -> Self {
        let source = Source { topic, partition: 0, offset: 0, bytes: value.len() };
        let error = DecodeError::new(crate::decode::ErrorCode::NotJson, "");
        let value = LetterValue::Kept(value.to_vec());
        Self { value, ..Self::of_unread(source, "", &error) }
    }
}

/// Returns the size of key and headers, which a letter holds in addition to the value.
pub fn rest_bytes(message: &BorrowedMessage<'_>) -> usize {
    message.key().map_or(0, <[u8]>::len) + headers_bytes(message)
}

/// Returns the size of the headers; 0 if a name is not UTF-8, so that they cannot be read. The producer rejects such
/// headers if they are too large.
fn headers_bytes(message: &BorrowedMessage<'_>) -> usize {
    let headers = headers::all(message).unwrap_or_default();
    headers.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len)).sum()
}
