//! A record's bytes → a fact, in whatever its topic is written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use config::{Config, Format};

use super::framing::{Framed, unframed};
use super::{DecodeError, ErrorCode, Schema};
use crate::decode;
use crate::kafka::error::IngestError;
use crate::kafka::topics::{PerTopic, TopicKind};
use crate::registry::{JSON_SCHEMA, Lookup, Registry, SchemaKey, UnusableKind};
use crate::timing::Timing;

/// Schemas that are at hand without asking.
const LAST: usize = 8;

/// What became of a record.
pub enum Decoded {
    Fact(Fact),
    Bad(DecodeError),
    /// Nobody knows yet: its schema has been asked for.
    Waits(SchemaKey),
}

/// Decodes records of the topics of the settings.
pub struct Decoder {
    policy: Arc<Policy>,
    patience: Duration,
    formats: PerTopic<TopicFormat>,
    registry: Option<Registry<Writing>>,
    /// What was asked for last: most topics have one schema.
    last: Vec<(SchemaKey, Arc<Writing>)>,
}

/// What a schema of the registry says of the values that name it.
#[derive(Debug)]
pub enum Writing {
    /// Of whatever JSON Schema: the decoder has its own.
    Json,
    Avro(Schema),
}

impl Writing {
    fn parse(text: &str) -> Result<Self, String> {
        if text == JSON_SCHEMA { Ok(Self::Json) } else { Schema::parse(text).map(Self::Avro) }
    }
}

#[derive(Debug, Clone)]
enum TopicFormat {
    Auto,
    Json,
    Avro,
    AvroOf(Arc<Schema>),
}

impl Decoder {
    /// A record waits so long for its schema before it is said to wait.
    ///
    /// # Errors
    /// A schema's file that can not be used, or a registry's client that can not be made.
    pub fn new(config: &Config, patience: Duration, timing: Timing) -> Result<Self, IngestError> {
        let formats = formats(config)?;
        let registry = config
            .registry
            .as_ref()
            .map(|settings| Registry::start(settings, Writing::parse, timing));
        Ok(Self {
            policy: config.policy.clone(),
            patience,
            formats,
            registry: registry.transpose()?,
            last: Vec::new(),
        })
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn registry(&self) -> Option<&Registry<Writing>> {
        self.registry.as_ref()
    }

    /// `header` is what the record has under [`decode::framing::HEADER`]; of a topic that is none of
    /// the three all is told by content.
    pub fn decode(
        &mut self,
        value: &[u8],
        header: Option<&[u8]>,
        topic: Option<TopicKind>,
    ) -> Decoded {
        let format = self.format(topic);
        let framed = match format {
            TopicFormat::Json => Ok(Framed::Bare(value)),
            TopicFormat::AvroOf(schema) => {
                return done(decode::decode_avro(value, &schema, topic, &self.policy));
            }
            TopicFormat::Auto | TopicFormat::Avro => unframed(value, header),
        };
        match framed {
            Err(error) => Decoded::Bad(error),
            Ok(Framed::Bare(_)) if matches!(format, TopicFormat::Avro) => Decoded::Bad(unnamed()),
            Ok(Framed::Bare(json)) => done(decode::decode(json, topic, &self.policy)),
            Ok(Framed::Named(key, rest)) => match self.writing(key) {
                Ok(Some(writing)) => done(match &*writing {
                    Writing::Json => decode::decode(rest, topic, &self.policy),
                    Writing::Avro(schema) => decode::decode_avro(rest, schema, topic, &self.policy),
                }),
                Ok(None) => Decoded::Waits(key),
                Err(error) => Decoded::Bad(error),
            },
        }
    }

    /// What a value that was decoded is taken to be written in, in words for people.
    pub fn written_in(
        &self,
        value: &[u8],
        header: Option<&[u8]>,
        topic: Option<TopicKind>,
    ) -> Option<String> {
        match self.format(topic) {
            TopicFormat::Json => Some("json".to_owned()),
            TopicFormat::AvroOf(_) => Some("avro".to_owned()),
            TopicFormat::Auto | TopicFormat::Avro => match unframed(value, header).ok()? {
                Framed::Named(key, _) => {
                    let is_json = |writing: &Arc<Writing>| matches!(**writing, Writing::Json);
                    let kind = if self.known(key).is_some_and(is_json) { "json" } else { "avro" };
                    Some(format!("{kind} {key}"))
                }
                Framed::Bare(value) => {
                    (value.trim_ascii_start().first() == Some(&b'{')).then(|| "json".to_owned())
                }
            },
        }
    }

    fn format(&self, topic: Option<TopicKind>) -> TopicFormat {
        topic.map_or(TopicFormat::Auto, |topic| self.formats.of(topic).clone())
    }

    fn known(&self, key: SchemaKey) -> Option<&Arc<Writing>> {
        self.last.iter().find(|(last, _)| *last == key).map(|(_, writing)| writing)
    }

    /// `None` if it is not known yet.
    fn writing(&mut self, key: SchemaKey) -> Result<Option<Arc<Writing>>, DecodeError> {
        if let Some(writing) = self.known(key) {
            return Ok(Some(writing.clone()));
        }
        let Some(registry) = &self.registry else {
            let message = format!(
                "its schema is {key} of a registry, and none is configured: set registry.urls"
            );
            return Err(DecodeError { code: ErrorCode::UnknownSchema, field: None, message });
        };
        match registry.wait(key, self.patience) {
            Lookup::Ready(writing) => {
                self.last.truncate(LAST - 1);
                self.last.insert(0, (key, writing.clone()));
                Ok(Some(writing))
            }
            Lookup::Waiting => Ok(None),
            Lookup::Unusable(unusable) => {
                let code = match unusable.kind {
                    UnusableKind::Unknown => ErrorCode::UnknownSchema,
                    UnusableKind::Bad => ErrorCode::BadSchema,
                };
                let message = format!("schema {key}: {}", unusable.reason);
                Err(DecodeError { code, field: None, message })
            }
        }
    }
}

/// That the formats of the settings can be read: schemas are there, and a registry where it is needed.
///
/// # Errors
/// The first that can not.
pub fn check(config: &Config) -> Result<(), IngestError> {
    formats(config).map(drop)
}

fn formats(config: &Config) -> Result<PerTopic<TopicFormat>, IngestError> {
    let given = &config.kafka.formats;
    let mut read = PerTopic::from_fn(|_| TopicFormat::Auto);
    for topic in TopicKind::ALL {
        let (setting, format) = match topic {
            TopicKind::Clicks => ("clicks", &given.clicks),
            TopicKind::Activations => ("activations", &given.activations),
            TopicKind::Effects => ("effects", &given.effects),
        };
        if *format == Format::Avro && config.registry.is_none() {
            return Err(IngestError::NoRegistry { setting });
        }
        *read.of_mut(topic) = topic_format(setting, format)?;
    }
    Ok(read)
}

fn done(decoded: Result<Fact, DecodeError>) -> Decoded {
    match decoded {
        Ok(fact) => Decoded::Fact(fact),
        Err(error) => Decoded::Bad(error),
    }
}

fn unnamed() -> DecodeError {
    let message = "nothing names the schema of this Avro; expected a header __value_schema_id, or \
                   a byte 0 and an id, or a byte 1 and a GUID before it"
        .to_owned();
    DecodeError { code: ErrorCode::NotAvro, field: None, message }
}

fn topic_format(setting: &'static str, format: &Format) -> Result<TopicFormat, IngestError> {
    Ok(match format {
        Format::Auto => TopicFormat::Auto,
        Format::Json => TopicFormat::Json,
        Format::Avro => TopicFormat::Avro,
        Format::AvroOf(path) => {
            let refuse = |problem| schema_file(setting, path, problem);
            let text = std::fs::read_to_string(path)
                .map_err(|error| refuse(format!("the file can not be read, {error}")))?;
            TopicFormat::AvroOf(Arc::new(Schema::parse(&text).map_err(refuse)?))
        }
    })
}

fn schema_file(setting: &'static str, path: &Path, problem: String) -> IngestError {
    IngestError::SchemaFile { setting, path: path.to_owned(), problem }
}
