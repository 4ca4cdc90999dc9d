//! Decodes Avro events that `apache-avro` encoded, and compares the result with its schema resolution.

mod evolve;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Datum;
use apache_avro::writer::datum::GenericDatumWriter;
use attribution::facts::event::Fact;
use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::decode::{self, DecodeError, ErrorCode, Schema};
use crate::fuzz::POLICY;
use crate::fuzz::avro::{TEXTS, outline};
use crate::kafka::topics::TopicKind;

fn parsed(schema: &Json) -> apache_avro::Schema {
    apache_avro::Schema::parse(schema).expect("the schema is valid")
}

/// Returns an event as a datum of a schema.
fn datum_of(schema: &Json, event: &Json) -> Datum {
    let event = Datum::try_from(event.clone()).expect("Avro has the types of the event");
    event.resolve(&parsed(schema)).expect("the event matches the schema")
}

fn encoded(schema: &Json, datum: Datum) -> Vec<u8> {
    let schema = parsed(schema);
    let writer = GenericDatumWriter::builder(&schema).build().expect("the writer is created");
    writer.write_value_to_vec(datum).expect("the datum matches the schema")
}

fn decoded(schema: &Json, datum: &[u8]) -> Result<Fact, DecodeError> {
    let schema = Schema::parse(&schema.to_string()).expect("the schema is usable");
    decode::decode_avro(datum, &schema, None, &POLICY)
}

/// Decodes the same event from JSON.
fn from_json(event: &Json) -> Result<Fact, DecodeError> {
    decode::decode(event.to_string().as_bytes(), None, &POLICY)
}

fn schemas() -> [Json; 3] {
    TEXTS.map(|text| serde_json::from_str(text).expect("the JSON is valid"))
}

/// Returns one event of each schema, with every field.
fn events() -> [Json; 3] {
    let with = |fields: Json| {
        let mut event = json!({"app": "app-x", "time": 1_773_144_000_000_u64, "ip": "203.0.113.9",
            "ua": "Mozilla", "device_model": "P60", "os": "android", "os_version": "14",
            "ids": {"oaid": "o-1", "imei_md5": "ab"}});
        let fields = fields.as_object().expect("the event is an object").clone();
        event.as_object_mut().expect("the event is an object").extend(fields);
        event
    };
    [
        with(json!({"type": "impression", "click_id": "c-1", "spreadid": 4_294_967_295_u32,
            "purpose": "retargeting", "lookback_ms": 604_800_000, "site": "s",
            "params": {"sub1": "x"}})),
        with(json!({"type": "activation", "event_id": "a-1", "click_id": "c-1",
            "install_begin_time": 1_773_143_990_000_u64, "app_version": "1.2",
            "props": {"store": "huawei"}})),
        with(json!({"type": "effect", "event_id": "e-1", "name": "purchase", "revenue": "9.90",
            "currency": "CNY", "app_version": "1.2", "props": {"level": "3"}})),
    ]
}

/// Returns the published schema of a family with another type for one field, and the event with that value.
fn with_field(family: usize, name: &str, schema: Json, value: Datum) -> (Json, Vec<u8>) {
    let (mut writer, event) = (schemas()[family].clone(), &events()[family]);
    let Datum::Record(mut record) = datum_of(&writer, event) else { panic!("expected a record") };
    record.iter_mut().find(|(key, _)| key == name).expect("the field exists").1 = value;
    let fields = writer["fields"].as_array_mut().expect("the schema has fields");
    let field = fields.iter_mut().find(|field| field["name"] == name).expect("the field exists");
    *field = json!({"name": name, "type": schema});
    let datum = encoded(&writer, Datum::Record(record));
    (writer, datum)
}

/// Checks a field of another type: `expected` is its value in JSON, or the error code.
#[track_caller]
fn check(family: usize, name: &str, schema: Json, value: Datum, expected: Result<Json, ErrorCode>) {
    let (writer, datum) = with_field(family, name, schema, value);
    let found = decoded(&writer, &datum);
    match expected {
        Ok(value) => {
            let mut event = events()[family].clone();
            event[name] = value;
            assert_eq!(found, from_json(&event));
        }
        Err(code) => {
            let error = found.expect_err("it must be refused");
            assert_eq!((error.code, error.field.as_deref()), (code, Some(name)), "{error}");
        }
    }
}

fn text(text: &str) -> Datum {
    Datum::String(text.to_owned())
}

#[test]
fn truncated_data_and_trailing_bytes_are_refused() {
    for (schema, event) in schemas().iter().zip(events()) {
        let whole = encoded(schema, datum_of(schema, &event));
        for end in 0..whole.len() {
            let error = decoded(schema, &whole[..end]).expect_err("the data is truncated");
            assert_eq!(error.code, ErrorCode::NotAvro, "{end} of {}: {error}", whole.len());
            assert!(error.field.is_some(), "{end}: {error}");
        }
        let longer = [&whole[..], &[0]].concat();
        let error = decoded(schema, &longer).expect_err("bytes follow the record");
        assert_eq!((error.code, error.field), (ErrorCode::NotAvro, None));
    }
}

/// Resolves a datum to the published schema with `apache-avro`, and returns it as JSON.
fn resolved(writer: &Json, published: &Json, datum: &[u8]) -> Json {
    let (writer, reader) = (parsed(writer), parsed(published));
    let resolving = GenericDatumReader::builder(&writer).reader_schema(&reader).build();
    let value = resolving
        .expect("the reader is created")
        .read_value(&mut &*datum)
        .expect("the schemas resolve");
    Json::try_from(value).expect("the JSON is valid")
}

#[test]
fn evolved_schemas_are_resolved_like_apache_avro_does() {
    // `AVRO_CASES=10000` runs more cases.
    let count = std::env::var("AVRO_CASES").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(300_u64);
    let mut facts = 0;
    for seed in 0..count {
        let mut rng = Rng::with_seed(seed);
        let family = rng.usize(..3);
        let (published, event) = (&schemas()[family], &events()[family]);
        let evolve::Evolved { schema, datum } = evolve::evolved(published, event, &mut rng);
        let datum = encoded(&schema, datum);
        let expected = from_json(&resolved(&schema, published, &datum));
        facts += u32::from(expected.is_ok());
        let usable = Schema::parse(&schema.to_string()).expect("the schema is usable");
        let topic = Some(TopicKind::ALL[family]);
        let found = decode::decode_avro(&datum, &usable, topic, &POLICY);
        assert_eq!(outline(found), outline(expected), "seed {seed}: {schema}");
        for end in 0..datum.len() {
            let found = decode::decode_avro(&datum[..end], &usable, topic, &POLICY);
            let error = found.expect_err("the data is truncated");
            assert_eq!(error.code, ErrorCode::NotAvro, "seed {seed}, {end}: {error}");
        }
    }
    assert!(u64::from(facts) > count / 10 * 9, "{facts} of {count} are events");
}

#[test]
fn a_field_is_matched_by_an_alias_that_is_our_name() {
    #[track_caller]
    fn check(aliases: &[(&str, &[&str])], expected: &str) {
        let mut writer = schemas()[1].clone();
        let fields = writer["fields"].as_array_mut().expect("the schema has fields");
        fields.retain(|field| field["name"] != "click_id");
        let mut event = events()[1].clone();
        for (name, aliases) in aliases {
            fields.push(json!({"name": name, "type": "string", "aliases": aliases}));
            event[name] = json!(name);
        }
        let mut plain = writer.clone();
        for field in plain["fields"].as_array_mut().expect("the schema has fields") {
            field.as_object_mut().expect("the field is an object").remove("aliases");
        }
        let datum = encoded(&plain, datum_of(&plain, &event));
        let Ok(Fact::Activation(fact)) = decoded(&writer, &datum) else {
            panic!("expected an activation")
        };
        assert_eq!(&*fact.click_id, expected);
    }
    check(&[("referrer", &[])], "");
    check(&[("referrer", &["other", "click_id"])], "referrer");
    check(&[("click_id", &["other"])], "click_id");
    check(&[("referrer", &["click_id"]), ("click_id", &[])], "click_id");
    check(&[("click_id", &["event_id"]), ("referrer", &["click_id"])], "click_id");
    check(&[("one", &["click_id"]), ("two", &["click_id"])], "one");
}

#[test]
fn times_are_read_in_every_unit() {
    let long = |unit: &str| json!({"type": "long", "logicalType": unit});
    let ms = 1_773_144_000_123_i64;
    for (name, family) in [("time", 0), ("install_begin_time", 1)] {
        let check = |schema, value, expected| check(family, name, schema, value, expected);
        check(json!("long"), Datum::Long(ms), Ok(json!(ms)));
        check(long("timestamp-millis"), Datum::TimestampMillis(ms), Ok(json!(ms)));
        check(long("timestamp-micros"), Datum::TimestampMicros(ms * 1_000 + 999), Ok(json!(ms)));
        check(long("timestamp-nanos"), Datum::TimestampNanos(ms * 1_000_000 + 1), Ok(json!(ms)));
        check(json!("int"), Datum::Int(5), Err(ErrorCode::BadTime));
        check(json!("double"), Datum::Double(ms as f64), Ok(json!(ms)));
        let rfc3339 = "2026-03-10T12:00:00.123Z";
        check(json!("string"), text(rfc3339), Ok(json!(rfc3339)));
        let union = json!(["null", "string", {"type": "long", "logicalType": "timestamp-micros"}]);
        let micros = Datum::Union(2, Box::new(Datum::TimestampMicros(ms * 1_000)));
        check(union, micros, Ok(json!(ms)));
        check(json!("double"), Datum::Double(ms as f64 + 0.5), Err(ErrorCode::WrongType));
        check(json!("bytes"), Datum::Bytes(vec![5]), Err(ErrorCode::BadValue));
        check(json!("bytes"), Datum::Bytes(vec![0xff]), Err(ErrorCode::WrongType));
        let local = Datum::LocalTimestampMillis(ms);
        check(long("local-timestamp-millis"), local, Err(ErrorCode::WrongType));
        let date = json!({"type": "int", "logicalType": "date"});
        check(date, Datum::Date(20_000), Err(ErrorCode::WrongType));
    }
    let before_1970 = || (long("timestamp-micros"), Datum::TimestampMicros(-1));
    let (schema, value) = before_1970();
    check(0, "time", schema, value, Err(ErrorCode::BadTime));
    let (schema, value) = before_1970();
    check(1, "install_begin_time", schema, value, Ok(json!(-1)));
}

#[test]
fn revenue_is_read_from_every_numeric_and_text_type() {
    let check = |schema, value, expected| check(2, "revenue", schema, value, expected);
    let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2});
    let cents = |cents: i64| Datum::Decimal(cents.to_be_bytes().into());
    check(decimal.clone(), cents(990), Ok(json!("9.90")));
    check(decimal, cents(-1), Ok(json!("-0.01")));
    check(json!("string"), text("9.90"), Ok(json!("9.90")));
    check(json!("string"), text("9,90"), Err(ErrorCode::BadValue));
    check(json!("long"), Datum::Long(i64::MIN), Ok(json!("-9223372036854775808")));
    check(json!("int"), Datum::Int(-7), Ok(json!("-7")));
    check(json!("double"), Datum::Double(9.99), Ok(json!("9.99")));
    check(json!("float"), Datum::Float(9.99), Ok(json!("9.99")));
    check(json!("double"), Datum::Double(1e300), Err(ErrorCode::BadValue));
    check(json!("double"), Datum::Double(f64::NAN), Err(ErrorCode::BadValue));
    check(json!("boolean"), Datum::Boolean(true), Err(ErrorCode::WrongType));
    check(json!("bytes"), Datum::Bytes(b"9.99".into()), Ok(json!("9.99")));
    check(json!("bytes"), Datum::Bytes(vec![0xff]), Err(ErrorCode::WrongType));
    let list = json!({"type": "array", "items": "string"});
    check(list, Datum::Array(vec![text("1")]), Err(ErrorCode::WrongType));
    let map = json!({"type": "map", "values": "string"});
    check(map, Datum::Map([("1".into(), text("1"))].into()), Err(ErrorCode::WrongType));
}

#[test]
fn other_fields_are_read_from_compatible_types() {
    let check = |name, schema, value, expected| check(0, name, schema, value, expected);
    let purpose = json!({"type": "enum", "name": "P", "symbols": ["ua", "retargeting"]});
    check("purpose", purpose, Datum::Enum(1, "retargeting".into()), Ok(json!("retargeting")));
    let ids = json!({"type": "record", "name": "Ids", "fields": [
        {"name": "oaid", "type": ["null", "string"]}, {"name": "imei", "type": ["null", "string"]}]});
    let null = Datum::Union(0, Box::new(Datum::Null));
    let oaid = Datum::Union(1, Box::new(text("o-2")));
    let record = Datum::Record(vec![("oaid".into(), oaid), ("imei".into(), null)]);
    check("ids", ids, record, Ok(json!({"oaid": "o-2"})));
    check("spreadid", json!("int"), Datum::Int(7), Ok(json!(7)));
    check("spreadid", json!("int"), Datum::Int(-7), Err(ErrorCode::BadValue));
    check("spreadid", json!("string"), text("7"), Err(ErrorCode::WrongType));
    check("app", json!("bytes"), Datum::Bytes(b"app-x".into()), Ok(json!("app-x")));
    check("site", json!("bytes"), Datum::Bytes(vec![b's', 0xff]), Err(ErrorCode::WrongType));
    let uuid = json!({"type": "bytes", "logicalType": "uuid"});
    let (writer, datum) = with_field(0, "site", json!("bytes"), Datum::Bytes(vec![b'u'; 16]));
    let named =
        serde_json::from_str::<Json>(&writer.to_string().replace("\"bytes\"", &uuid.to_string()));
    let error =
        decoded(&named.expect("the JSON is valid"), &datum).expect_err("the value is not a text");
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::WrongType, Some("site")));
    check("ip", json!("null"), Datum::Null, Ok(Json::Null));
    let numbers = json!({"type": "map", "values": "long"});
    let levels = Datum::Map([("level".into(), Datum::Long(3))].into());
    let (writer, datum) = with_field(0, "params", numbers, levels);
    let error = decoded(&writer, &datum).expect_err("the member is a number");
    let found = (error.code, error.field.as_deref());
    assert_eq!(found, (ErrorCode::WrongType, Some("params.level")));
}

#[test]
fn a_union_of_records_is_read_by_its_branch() {
    let union = Json::Array([vec![json!("null")], schemas().to_vec()].concat());
    for (branch, (schema, event)) in (1..).zip(schemas().iter().zip(events())) {
        let datum = Datum::Union(branch, Box::new(datum_of(schema, &event)));
        let fact = decoded(&union, &encoded(&union, datum));
        assert!(fact.is_ok(), "{fact:?}");
        assert_eq!(fact, from_json(&event));
    }
    let null = encoded(&union, Datum::Union(0, Box::new(Datum::Null)));
    assert_eq!(decoded(&union, &null).expect_err("null is not a record").code, ErrorCode::NotAvro);
}

#[test]
fn errors_of_unusable_schemas_state_the_reason() {
    #[track_caller]
    fn check(schema: &str, expected: &str) {
        let error = Schema::parse(schema).expect_err("it must be refused");
        assert!(error.contains(expected), "{error}");
    }
    let click = |fields: &str| format!(r#"{{"type":"record","name":"C","fields":[{fields}]}}"#);
    check("", "not JSON");
    check("{", "not JSON");
    check("\"string\"", "not a record");
    check("[\"null\", \"string\"]", "not a record");
    check("{\"type\": \"record\"}", "not an Avro schema");
    check(&click(r#"{"name": "a", "type": "b"}"#), "not an Avro schema");
    check(&click(r#"{"name": "a", "type": "int"}, {"name": "a"}"#), "not an Avro schema");
    check(&format!("{}{}{}", "[".repeat(200), "\"int\"", "]".repeat(200)), "not JSON");
}

/// Few bytes may nest or expand without limit.
#[test]
fn nesting_and_expansion_are_bounded() {
    #[track_caller]
    fn check(case: &str, field: &str, kind: Json, datum: &[u8]) {
        let fields = json!([{"name": field, "type": kind}]);
        let schema = json!({"type": "record", "name": "C", "fields": fields});
        let error = decoded(&schema, datum).expect_err(case);
        assert_eq!(
            (error.code, error.field.as_deref()),
            (ErrorCode::NotAvro, Some(field)),
            "{case}"
        );
    }
    let array = |items: Json| json!({"type": "array", "items": items});
    let linked_list = [&[2_u8].repeat(100_000)[..], &[0]].concat();
    check("100,000 records, one in another", "more", json!(["null", "C"]), &linked_list);
    check("a record that always contains itself", "ids", json!("C"), b"");
    let many_nulls = [0xfe, 0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    check("elements without bytes", "many", array(json!("null")), &many_nulls);
    // 33 record types, each with two fields of the previous type: an empty datum expands to 2^32 values.
    let record = |name: usize, kind: Json| {
        json!({"type": "record", "name": format!("r{name}"), "fields": [
            {"name": "a", "type": kind}, {"name": "b", "type": format!("r{}", name.max(1) - 1)}]})
    };
    let first = json!({"type": "record", "name": "r0", "fields": []});
    let nested = (1..33).fold(first, |inner, name| record(name, inner));
    check("nested records in an unknown field", "other", nested.clone(), b"");
    check("nested records in a known field", "props", nested, b"");
    let fields: Vec<Json> =
        (0..20_000).map(|number| json!({"name": format!("f{number}"), "type": "null"})).collect();
    let wide = json!({"type": "record", "name": "W", "fields": fields});
    check("records with many fields", "many", array(wide), &[0x80, 0x80, 0x80, 1, 0]);
    // An enum symbol is in the schema once, but may occur in an event any number of times.
    let symbol = json!({"type": "enum", "name": "E", "symbols": ["x".repeat(900_000)]});
    let datum = [&[0x80, 0x80, 1][..], &[0, 0].repeat(8_192), &[0]].concat();
    check("symbols of 8 GB", "props", json!({"type": "map", "values": symbol}), &datum);
}

#[test]
fn aliases_in_nested_records_do_not_match_event_fields() {
    let ids = json!({"type": "record", "name": "P", "fields": [
        {"name": "system", "type": "string", "aliases": ["os"]}]});
    let mut plain = ids.clone();
    plain["fields"][0].as_object_mut().expect("the field is an object").remove("aliases");
    let record = Datum::Record(vec![("system".into(), text("x"))]);
    let (plain, datum) = with_field(1, "props", plain, record);
    let writer =
        plain.to_string().replace(r#""name":"system""#, r#""aliases":["os"],"name":"system""#);
    let writer: Json = serde_json::from_str(&writer).expect("the JSON is valid");
    let Ok(Fact::Activation(fact)) = decoded(&writer, &datum) else {
        panic!("expected an activation")
    };
    assert_eq!(fact.props, [("system".into(), "x".into())]);
}

#[test]
fn an_error_type_of_a_protocol_is_read_as_a_record() {
    let mut schema = schemas()[1].clone();
    let event = &events()[1];
    let datum = encoded(&schema, datum_of(&schema, event));
    schema["type"] = json!("error");
    assert_eq!(decoded(&schema, &datum), from_json(event));
}
