//! Decodes a record's value to a fact, in the format of its topic.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use config::{Config, Format};
use jiff::Timestamp;

use super::event::Built;
use super::framing::{Framed, unframed};
use super::lateness::{self, Received};
use super::{DecodeError, ErrorCode, Schema};
use crate::decode;
use crate::kafka::error::IngestError;
use crate::kafka::topics::{PerTopic, TopicKind};
use crate::registry::{JSON_SCHEMA, Registry, SchemaKey, SchemaLookup, UnusableKind};
use crate::timing::Timing;

/// Number of schemas that are found without a lookup in the registry's cache.
const RECENT_MAX: usize = 8;

/// The settings of apps by which records are decoded: for each record, the latest ones. Clones share them.
pub type LivePolicy = Arc<ArcSwap<Policy>>;

/// The result of decoding a record.
pub enum Decoded {
    Fact(Built),
    Bad(DecodeError),
    /// The schema is not known yet; it is being fetched.
    AwaitingSchema(SchemaKey),
}

/// Decodes records of the configured topics.
pub struct Decoder {
    pub policy: Arc<Policy>,
    schema_timeout: Duration,
    event_bytes_max: usize,
    formats: PerTopic<TopicFormat>,
    pub registry: Option<Registry<WriterSchema>>,
    /// The schemas used last. Most topics have a single schema.
    recent: Vec<(SchemaKey, Arc<WriterSchema>)>,
}

/// A schema of the registry.
#[derive(Debug)]
pub enum WriterSchema {
    /// Any JSON Schema. Its content is not used, because JSON values are decoded without it.
    Json,
    Avro(Schema),
}

impl WriterSchema {
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
    /// Creates a decoder. It waits up to `schema_timeout` for the schema of a record before it returns
    /// [`Decoded::AwaitingSchema`].
    ///
    /// # Errors
    /// If a schema file cannot be used, or the registry client cannot be created.
    pub fn new(
        config: &Config,
        schema_timeout: Duration,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let formats = formats(config)?;
        let registry = config
            .registry
            .as_ref()
            .map(|settings| Registry::start(settings, WriterSchema::parse, timing));
        Ok(Self {
            policy: config.policy.clone(),
            schema_timeout,
            event_bytes_max: config.ingest.event_bytes_max,
            formats,
            registry: registry.transpose()?,
            recent: Vec::new(),
        })
    }

    /// Decodes a value. `header` is the value of the header [`decode::framing::HEADER`]. Without a topic, the format is
    /// detected from the content.
    pub fn decode(
        &mut self,
        value: &[u8],
        header: Option<&[u8]>,
        topic: Option<TopicKind>,
    ) -> Decoded {
        if let Err(error) = decode::check_length(value, self.event_bytes_max) {
            return Decoded::Bad(error);
        }
        let format = self.format(topic);
        let framed = match format {
            TopicFormat::Json => Ok(Framed::Bare(value)),
            TopicFormat::AvroOf(schema) => {
                return into_decoded(decode::build_avro(value, &schema, topic, &self.policy));
            }
            TopicFormat::Auto | TopicFormat::Avro => unframed(value, header),
        };
        match framed {
            Err(error) => Decoded::Bad(error),
            Ok(Framed::Bare(_)) if matches!(format, TopicFormat::Avro) => {
                Decoded::Bad(missing_schema_key())
            }
            Ok(Framed::Bare(json)) => into_decoded(decode::build(json, topic, &self.policy)),
            Ok(Framed::Named(key, rest)) => match self.writer_schema(key) {
                Ok(Some(schema)) => into_decoded(match &*schema {
                    WriterSchema::Json => decode::build(rest, topic, &self.policy),
                    WriterSchema::Avro(schema) => {
                        decode::build_avro(rest, schema, topic, &self.policy)
                    }
                }),
                Ok(None) => Decoded::AwaitingSchema(key),
                Err(error) => Decoded::Bad(error),
            },
        }
    }

    /// Checks the fact's time against the broker timestamp of its record or, without one, the current time.
    pub fn check_lateness(&self, fact: &Fact, broker_ms: Option<i64>) -> Result<(), DecodeError> {
        let received = match broker_ms {
            Some(ms) => Received::BrokerTimestamp(ms),
            None => Received::Arrival(Timestamp::now().as_millisecond()),
        };
        let app = self.policy.app(fact.pid());
        app.map_or(Ok(()), |app| lateness::check(fact.time(), received, app.correction_horizon_ms))
    }

    /// Describes the format of a decoded value, and its schema if the value names one; `None` if the format is unknown.
    pub fn format_name(
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
                    let is_json =
                        |schema: &Arc<WriterSchema>| matches!(**schema, WriterSchema::Json);
                    let kind = if self.recent(key).is_some_and(is_json) { "json" } else { "avro" };
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

    fn recent(&self, key: SchemaKey) -> Option<&Arc<WriterSchema>> {
        self.recent.iter().find(|(recent, _)| *recent == key).map(|(_, schema)| schema)
    }

    /// Returns the schema, or `None` if it is not known yet.
    fn writer_schema(&mut self, key: SchemaKey) -> Result<Option<Arc<WriterSchema>>, DecodeError> {
        if let Some(schema) = self.recent(key) {
            return Ok(Some(schema.clone()));
        }
        let Some(registry) = &self.registry else {
            let message = format!(
                "the record needs schema {key}, but no registry is configured; set registry.urls"
            );
            return Err(DecodeError::new(ErrorCode::UnknownSchema, message));
        };
        match registry.wait(key, self.schema_timeout) {
            SchemaLookup::Ready(schema) => {
                self.recent.truncate(RECENT_MAX - 1);
                self.recent.insert(0, (key, schema.clone()));
                Ok(Some(schema))
            }
            SchemaLookup::Waiting => Ok(None),
            SchemaLookup::Unusable(unusable) => {
                let code = match unusable.kind {
                    UnusableKind::Unknown => ErrorCode::UnknownSchema,
                    UnusableKind::Bad => ErrorCode::BadSchema,
                };
                Err(DecodeError::new(code, format!("schema {key}: {}", unusable.reason)))
            }
        }
    }
}

/// Checks the configured formats: schema files must be usable, and a registry configured if a format needs one.
///
/// # Errors
/// The first invalid setting.
pub fn check(config: &Config) -> Result<(), IngestError> {
    formats(config).map(drop)
}

fn formats(config: &Config) -> Result<PerTopic<TopicFormat>, IngestError> {
    let settings = &config.kafka.formats;
    let has_registry = config.registry.is_some();
    Ok(PerTopic([
        topic_format("clicks", &settings.clicks, has_registry)?,
        topic_format("activations", &settings.activations, has_registry)?,
        topic_format("effects", &settings.effects, has_registry)?,
    ]))
}

fn into_decoded(decoded: Result<Built, DecodeError>) -> Decoded {
    match decoded {
        Ok(built) => Decoded::Fact(built),
        Err(error) => Decoded::Bad(error),
    }
}

fn missing_schema_key() -> DecodeError {
    let message = "the record does not name its Avro schema; expected a header __value_schema_id, or \
                   a value that begins with a byte 0 and an id, or a byte 1 and a GUID";
    DecodeError::new(ErrorCode::NotAvro, message)
}

fn topic_format(
    setting: &'static str,
    format: &Format,
    has_registry: bool,
) -> Result<TopicFormat, IngestError> {
    Ok(match format {
        Format::Auto => TopicFormat::Auto,
        Format::Json => TopicFormat::Json,
        Format::Avro if has_registry => TopicFormat::Avro,
        Format::Avro => return Err(IngestError::NoRegistry { setting }),
        Format::AvroOf(path) => {
            let file_error = |problem| {
                let path = path.to_owned();
                IngestError::SchemaFile { setting, path, problem }
            };
            let text = std::fs::read_to_string(path)
                .map_err(|error| file_error(format!("the file cannot be read, {error}")))?;
            TopicFormat::AvroOf(Arc::new(Schema::parse(&text).map_err(file_error)?))
        }
    })
}
