//! Random schemas that evolved from the published ones, each with a random event.

use apache_avro::types::Value as Datum;
use fastrand::Rng;
use serde_json::{Value as Json, json};

/// A schema of another version, and an event written with it.
pub struct Evolved {
    pub schema: Json,
    pub datum: Datum,
}

/// Returns a schema that Avro's rules resolve to the published one, and an event written with it.
pub fn evolved(published: &Json, event: &Json, rng: &mut Rng) -> Evolved {
    let mut fields: Vec<(Json, Datum)> = Vec::new();
    for field in published["fields"].as_array().expect("the schema has fields") {
        let name = field["name"].as_str().expect("the field has a name");
        if field.get("default").is_some() && rng.u8(..4) == 0 {
            continue;
        }
        let is_null = event[name].is_null() || rng.u8(..5) == 0;
        let (schema, datum) = widened(&field["type"], &event[name], is_null, rng);
        fields.push((json!({"name": name, "type": schema, "doc": "another"}), datum));
    }
    for number in 0..rng.usize(..5) {
        let (schema, datum) = ignored(&format!("Extra{number}"), 3, rng);
        fields.push((json!({"name": format!("extra_{number}"), "type": schema}), datum));
    }
    rng.shuffle(&mut fields);
    let name_of = |field: &Json| field["name"].as_str().expect("the field has a name").to_owned();
    let datum = fields.iter().map(|(field, datum)| (name_of(field), datum.clone())).collect();
    let schemas: Vec<Json> = fields.into_iter().map(|(field, _)| field).collect();
    let name = published["name"].clone();
    let schema = json!({"type": "record", "name": name, "namespace": "adtrail", "fields": schemas});
    Evolved { schema, datum: Datum::Record(datum) }
}

/// Returns a type that Avro resolves to the published type, and the value as a datum of it.
fn widened(published: &Json, value: &Json, is_null: bool, rng: &mut Rng) -> (Json, Datum) {
    let (base, is_optional) = match published {
        Json::Array(branches) => (&branches[1], true),
        schema => (schema, false),
    };
    let is_null = is_null && is_optional;
    let (base, datum) = narrowed(base, value, rng);
    if !is_null && rng.bool() {
        return (base, datum);
    }
    let mut branches = vec![base, json!("null")];
    for wider in ["boolean", "double", "bytes"] {
        if rng.u8(..4) == 0 {
            branches.push(json!(wider));
        }
    }
    let written = branches[usize::from(is_null)].clone();
    rng.shuffle(&mut branches);
    let index =
        branches.iter().position(|branch| *branch == written).expect("the branch is in the union");
    let datum = if is_null { Datum::Null } else { datum };
    (Json::Array(branches), Datum::Union(index as u32, Box::new(datum)))
}

/// Returns the type, or a narrower one that Avro promotes to it, and the value as a datum of it.
fn narrowed(base: &Json, value: &Json, rng: &mut Rng) -> (Json, Datum) {
    if base["type"] == "map" {
        let texts = value.as_object().into_iter().flatten();
        let texts = texts.map(|(key, text)| (key.clone(), string(text)));
        return (base.clone(), Datum::Map(texts.collect()));
    }
    if *base == "string" {
        return (json!("string"), string(value));
    }
    let number = value.as_i64().unwrap_or_default();
    match i32::try_from(number) {
        Ok(number) if rng.bool() => (json!("int"), Datum::Int(number)),
        _ => (json!("long"), Datum::Long(number)),
    }
}

fn string(value: &Json) -> Datum {
    Datum::String(value.as_str().unwrap_or_default().to_owned())
}

/// Returns a random type and a value of it, for a field that is ignored.
fn ignored(name: &str, depth: u8, rng: &mut Rng) -> (Json, Datum) {
    let choices = if depth == 0 { 9 } else { 13 };
    match rng.u8(..choices) {
        0 => (json!("null"), Datum::Null),
        1 => (json!("boolean"), Datum::Boolean(rng.bool())),
        2 => (json!("int"), Datum::Int(rng.i32(..))),
        3 => (json!("long"), Datum::Long(rng.i64(..))),
        4 => (json!("float"), Datum::Float(rng.f32())),
        5 => (json!("double"), Datum::Double(rng.f64())),
        6 => (json!("bytes"), Datum::Bytes((0..rng.u8(..200)).collect())),
        7 => {
            let symbols = ["A", "B", "C"];
            let index = rng.usize(..3);
            let schema = json!({"type": "enum", "name": name, "symbols": symbols});
            (schema, Datum::Enum(index as u32, symbols[index].to_owned()))
        }
        8 => (json!({"type": "fixed", "name": name, "size": 5}), Datum::Fixed(5, vec![7; 5])),
        9 => {
            let (schema, datum) = ignored(&format!("{name}I"), depth - 1, rng);
            let items = Datum::Array(vec![datum; rng.usize(..4)]);
            (json!({"type": "array", "items": schema}), items)
        }
        10 => {
            let (schema, datum) = ignored(&format!("{name}V"), depth - 1, rng);
            let values = (0..rng.u8(..4)).map(|key| (key.to_string(), datum.clone()));
            let values = Datum::Map(values.collect());
            (json!({"type": "map", "values": schema}), values)
        }
        11 => {
            let (schema, datum) = ignored(&format!("{name}F"), depth - 1, rng);
            let fields = json!([{"name": "time", "type": schema}]);
            let schema = json!({"type": "record", "name": name, "fields": fields});
            (schema, Datum::Record(vec![("time".into(), datum)]))
        }
        _ => {
            let union = json!(["null", "string"]);
            (union, Datum::Union(1, Box::new(Datum::String("é".repeat(rng.usize(..90))))))
        }
    }
}
