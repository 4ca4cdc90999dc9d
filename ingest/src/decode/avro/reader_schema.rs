//! Compiles a writer's schema for reading events.
//!
//! Fields are matched by name, so added, removed and reordered fields are compatible. A field whose name is not one of
//! ours is matched by an alias that is.

use std::collections::HashMap;

use apache_avro::schema::{InnerDecimalSchema, Name, RecordSchema, UuidSchema};
use serde_json::Value as Json;

use super::super::event::FIELDS;

/// A compiled writer's schema.
#[derive(Debug)]
pub struct Schema {
    pub(super) kinds: Vec<Kind>,
    pub(super) root: KindId,
}

/// The index of a kind in its schema.
pub(super) type KindId = usize;

/// How a value is encoded, and its meaning.
#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    /// Bytes that are not a text, with a description.
    OtherBytes(&'static str),
    String,
    /// A time, with the number of units per millisecond.
    Timestamp(u64),
    /// An integer that is neither a time nor a count, with a description.
    OtherLong(&'static str),
    Fixed(usize),
    /// A UUID in 16 bytes.
    Uuid,
    Decimal {
        size: Option<usize>,
        scale: usize,
    },
    Enum(Box<[Box<str>]>),
    Array(KindId),
    Map(KindId),
    Union(Box<[KindId]>),
    Record(Box<[Field]>),
}

#[derive(Debug)]
pub(super) struct Field {
    pub name: Box<str>,
    pub target: Target,
    pub kind: KindId,
    pub fast_path: FastPath,
}

/// The most frequent kinds of fields, which are read without a lookup of the kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum FastPath {
    Text,
    /// A union of text and null, with the index of null, 0 or 1.
    TextOrNull(i64),
    /// An integer, with the divisor that converts it to our unit.
    Number(u64),
    Other,
}

/// The field of an event that a field of the schema fills.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Nothing,
    Revenue,
    /// The index in [`FIELDS`].
    Field(usize),
}

impl Schema {
    /// Compiles a self-contained schema.
    ///
    /// # Errors
    /// The reason why it cannot be used for events, as text for a dead letter.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut json: Json =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        for record in json.as_array_mut().map_or(vec![], |union| union.iter_mut().collect()) {
            rename_fields(record);
        }
        rename_fields(&mut json);
        prepare(&mut json);
        let parsed = apache_avro::Schema::parse(&json)
            .map_err(|error| format!("it is not an Avro schema: {error}"))?;
        let mut compiler = Compiler::default();
        let root = compiler.kind(&parsed)?;
        let kinds: Vec<Kind> = compiler.kinds;
        let is_record = |id: KindId| matches!(kinds.get(id), Some(Kind::Record(_)));
        let has_record = match kinds.get(root) {
            Some(Kind::Union(branches)) => branches.iter().any(|branch| is_record(*branch)),
            _ => is_record(root),
        };
        if has_record { Ok(Self { kinds, root }) } else { Err("it is not a record".to_owned()) }
    }

    pub(super) fn kind(&self, id: KindId) -> &Kind {
        // `push` returns only ids of existing kinds, so the default is never used.
        self.kinds.get(id).unwrap_or(&Kind::Null)
    }
}

/// Removes members that do not affect reading, so that errors in them do not matter.
fn prepare(json: &mut Json) {
    match json {
        Json::Array(list) => list.iter_mut().for_each(prepare),
        Json::Object(members) => {
            members.remove("doc");
            members.remove("order");
            // An error type of an Avro protocol is encoded like a record.
            if members.get("type").is_some_and(|kind| kind == "error") {
                members.insert("type".to_owned(), "record".into());
            }
            if let Some(fields) = members.get_mut("fields").and_then(Json::as_array_mut) {
                for field in fields.iter_mut().filter_map(Json::as_object_mut) {
                    field.remove("default");
                    field.remove("aliases");
                }
            }
            members.values_mut().for_each(prepare);
        }
        _ => {}
    }
}

/// Renames fields to our names by their aliases. Fields of nested records keep their names.
fn rename_fields(record: &mut Json) {
    let Some(fields) = record.get_mut("fields").and_then(Json::as_array_mut) else { return };
    let name_of = |field: &Json| field["name"].as_str().map(str::to_owned);
    let mut taken: Vec<String> = fields.iter().filter_map(name_of).collect();
    for field in fields {
        if field["name"].as_str().is_none_or(|name| FIELDS.contains(&name)) {
            continue;
        }
        let aliases = field["aliases"].as_array().into_iter().flatten().filter_map(Json::as_str);
        let ours = aliases
            .filter(|alias| FIELDS.contains(alias))
            .find(|alias| taken.iter().all(|name| name != alias));
        if let Some(ours) = ours.map(str::to_owned) {
            field["name"] = ours.clone().into();
            taken.push(ours);
        }
    }
}

/// The kinds of a schema under construction.
#[derive(Default)]
struct Compiler {
    kinds: Vec<Kind>,
    named: HashMap<Name, KindId>,
}

impl Compiler {
    fn push(&mut self, kind: Kind) -> KindId {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    fn named(&mut self, name: &Name, kind: Kind) -> KindId {
        let id = self.push(kind);
        self.named.insert(name.clone(), id);
        id
    }

    fn kind(&mut self, schema: &apache_avro::Schema) -> Result<KindId, String> {
        use apache_avro::Schema as Avro;
        let kind = match schema {
            Avro::Null => Kind::Null,
            Avro::Boolean => Kind::Boolean,
            Avro::Int => Kind::Int,
            Avro::Long => Kind::Long,
            Avro::Float => Kind::Float,
            Avro::Double => Kind::Double,
            Avro::Bytes => Kind::Bytes,
            Avro::BigDecimal => Kind::OtherBytes("a big decimal"),
            Avro::String | Avro::Uuid(UuidSchema::String) => Kind::String,
            Avro::Uuid(UuidSchema::Bytes) => Kind::OtherBytes("a UUID in bytes"),
            Avro::TimestampMillis => Kind::Timestamp(1),
            Avro::TimestampMicros => Kind::Timestamp(1_000),
            Avro::TimestampNanos => Kind::Timestamp(1_000_000),
            Avro::LocalTimestampMillis | Avro::LocalTimestampMicros | Avro::LocalTimestampNanos => {
                Kind::OtherLong("a local timestamp without time zone")
            }
            Avro::Date => Kind::OtherLong("a date"),
            Avro::TimeMillis | Avro::TimeMicros => Kind::OtherLong("a time of day"),
            Avro::Decimal(decimal) => {
                let size = match &decimal.inner {
                    InnerDecimalSchema::Bytes => None,
                    InnerDecimalSchema::Fixed(fixed) => Some(fixed.size),
                };
                let id = self.push(Kind::Decimal { size, scale: decimal.scale });
                if let InnerDecimalSchema::Fixed(fixed) = &decimal.inner {
                    self.named.insert(fixed.name.clone(), id);
                }
                return Ok(id);
            }
            Avro::Uuid(UuidSchema::Fixed(fixed)) if fixed.size == 16 => {
                return Ok(self.named(&fixed.name, Kind::Uuid));
            }
            Avro::Fixed(fixed) | Avro::Duration(fixed) | Avro::Uuid(UuidSchema::Fixed(fixed)) => {
                return Ok(self.named(&fixed.name, Kind::Fixed(fixed.size)));
            }
            Avro::Enum(enum_schema) => {
                let symbols =
                    enum_schema.symbols.iter().map(|symbol| symbol.as_str().into()).collect();
                return Ok(self.named(&enum_schema.name, Kind::Enum(symbols)));
            }
            Avro::Array(array) => Kind::Array(self.kind(&array.items)?),
            Avro::Map(map) => Kind::Map(self.kind(&map.types)?),
            Avro::Union(union) => {
                let branches = union.variants().iter().map(|branch| self.kind(branch));
                Kind::Union(branches.collect::<Result<_, _>>()?)
            }
            Avro::Record(record) => return self.record(record),
            Avro::Ref { name } => {
                let known = self.named.get(name).copied();
                return known.ok_or_else(|| "it refers to an undefined type".to_owned());
            }
        };
        Ok(self.push(kind))
    }

    /// Compiles a record. Its name is registered before its fields, which may refer to it.
    fn record(&mut self, record: &RecordSchema) -> Result<KindId, String> {
        let id = self.named(&record.name, Kind::Null);
        let mut fields = Vec::with_capacity(record.fields.len());
        for field in &record.fields {
            let target = match FIELDS.iter().position(|name| *name == field.name) {
                None => Target::Nothing,
                Some(_) if field.name == "revenue" => Target::Revenue,
                Some(index) => Target::Field(index),
            };
            let kind = self.kind(&field.schema)?;
            let fast_path = self.fast_path(kind);
            fields.push(Field { name: field.name.as_str().into(), target, kind, fast_path });
        }
        if let Some(kind) = self.kinds.get_mut(id) {
            *kind = Kind::Record(fields.into());
        }
        Ok(id)
    }

    fn fast_path(&self, kind: KindId) -> FastPath {
        match self.kinds.get(kind) {
            Some(Kind::String) => FastPath::Text,
            Some(Kind::Long) => FastPath::Number(1),
            Some(Kind::Timestamp(unit)) => FastPath::Number(*unit),
            Some(Kind::Union(branches)) => {
                let branches: Vec<_> = branches.iter().map(|id| self.kinds.get(*id)).collect();
                match branches[..] {
                    [Some(Kind::Null), Some(Kind::String)] => FastPath::TextOrNull(0),
                    [Some(Kind::String), Some(Kind::Null)] => FastPath::TextOrNull(1),
                    _ => FastPath::Other,
                }
            }
            _ => FastPath::Other,
        }
    }
}
