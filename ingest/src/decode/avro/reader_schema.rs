//! The schema that an event was written with, made into what is to be read.
//!
//! Fields are found by name, so those that were added, removed or put elsewhere do no harm. A field
//! that has another name here and one of ours as its alias goes by ours.

use std::collections::HashMap;

use apache_avro::schema::{InnerDecimalSchema, Name, RecordSchema, UuidSchema};
use serde_json::Value as Json;

use super::super::event::FIELDS;

/// A writer's schema.
#[derive(Debug)]
pub struct Schema {
    pub(super) kinds: Vec<Kind>,
    pub(super) root: KindId,
}

/// Where a kind stands among those of its schema.
pub(super) type KindId = usize;

/// What stands in the bytes, and what it means.
#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    /// Bytes that are no text, and what they are.
    OtherBytes(&'static str),
    String,
    /// A time, so many units a millisecond.
    Timestamp(u64),
    /// A number that is no time and no count.
    OtherLong(&'static str),
    Fixed(usize),
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
    pub meaning: Target,
    pub kind: KindId,
    pub shape: FastPath,
}

/// Of a field's kind what most have, so that they are read without a look at the kinds.
#[derive(Debug, Clone, Copy)]
pub(super) enum FastPath {
    Text,
    /// A union of a text and null, and at which of its two places null is.
    TextOrNull(i64),
    /// Whole, so many units to one of ours.
    Number(u64),
    Other,
}

/// Which field of an event it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Nothing,
    Revenue,
    /// Its place in [`FIELDS`].
    Field(usize),
}

impl Schema {
    /// Takes a schema in which all names are defined.
    ///
    /// # Errors
    /// Why no event can be read with it, in words for a dead letter.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut json: Json =
            serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        for record in json.as_array_mut().map_or(vec![], |union| union.iter_mut().collect()) {
            rename_fields(record);
        }
        rename_fields(&mut json);
        prepare(&mut json);
        let parsed = apache_avro::Schema::parse(&json)
            .map_err(|error| format!("it is no Avro schema: {error}"))?;
        let mut plan = Plan::default();
        let root = plan.kind(&parsed)?;
        let kinds: Vec<Kind> = plan.kinds;
        let is_record = |id: KindId| matches!(kinds.get(id), Some(Kind::Record(_)));
        let has_record = match kinds.get(root) {
            Some(Kind::Union(branches)) => branches.iter().any(|branch| is_record(*branch)),
            _ => is_record(root),
        };
        if has_record { Ok(Self { kinds, root }) } else { Err("it is no record".to_owned()) }
    }

    pub(super) fn kind(&self, id: KindId) -> &Kind {
        // An id is made where its kind is pushed, so that there is one.
        self.kinds.get(id).unwrap_or(&Kind::Null)
    }
}

/// Takes out what does not matter for reading, and so need not be right.
fn prepare(json: &mut Json) {
    match json {
        Json::Array(list) => list.iter_mut().for_each(prepare),
        Json::Object(members) => {
            members.remove("doc");
            members.remove("order");
            // Of a protocol; it is written as a record is.
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

/// Has the fields of an event go by our names; those of a record within it are its own.
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
struct Plan {
    kinds: Vec<Kind>,
    named: HashMap<Name, KindId>,
}

impl Plan {
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
                Kind::OtherLong("a local time, which is no moment")
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
            Avro::Fixed(fixed) | Avro::Duration(fixed) | Avro::Uuid(UuidSchema::Fixed(fixed)) => {
                return Ok(self.named(&fixed.name, Kind::Fixed(fixed.size)));
            }
            Avro::Enum(one) => {
                let symbols = one.symbols.iter().map(|symbol| symbol.as_str().into()).collect();
                return Ok(self.named(&one.name, Kind::Enum(symbols)));
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
                return known.ok_or_else(|| "it names a type that it does not define".to_owned());
            }
        };
        Ok(self.push(kind))
    }

    /// Known by its name before its fields are, for they may be of its own kind.
    fn record(&mut self, record: &RecordSchema) -> Result<KindId, String> {
        let id = self.named(&record.name, Kind::Null);
        let mut fields = Vec::with_capacity(record.fields.len());
        for field in &record.fields {
            let meaning = match FIELDS.iter().position(|name| *name == field.name) {
                None => Target::Nothing,
                Some(_) if field.name == "revenue" => Target::Revenue,
                Some(place) => Target::Field(place),
            };
            let kind = self.kind(&field.schema)?;
            let shape = self.shape(kind);
            fields.push(Field { name: field.name.as_str().into(), meaning, kind, shape });
        }
        if let Some(kind) = self.kinds.get_mut(id) {
            *kind = Kind::Record(fields.into());
        }
        Ok(id)
    }

    fn shape(&self, kind: KindId) -> FastPath {
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
