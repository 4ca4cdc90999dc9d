//! Inlines the schemas that a schema refers to: each named type is defined where it is first used, and referred to by
//! name from there on. Works on the JSON; all it knows about Avro is where schemas are nested and how names are
//! resolved.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Maximum nesting of types. Decoders and this module recurse for each level.
const DEPTH_MAX: usize = 64;

/// Maximum length of all names together. Limited because names are written in full, which makes the text longer.
const NAME_BYTES_MAX: usize = 1 << 20;

/// Returns the schema `root` with all types that it uses inlined. An error is the message of a dead letter.
pub fn inline(root: &str, referenced: &[String]) -> Result<String, String> {
    let root = parse(root)?;
    let referenced: Vec<Value> =
        referenced.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let mut definitions = Definitions::default();
    for schema in std::iter::once(&root).chain(&referenced) {
        definitions.collect(schema, "", 0)?;
    }
    let mut writer = Writer { definitions, written: HashSet::new(), name_bytes: 0 };
    Ok(writer.schema(&root, "", 0)?.to_string())
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the schema is not JSON: {error}"))
}

/// The named types of all texts, by full name.
#[derive(Default)]
struct Definitions<'a>(HashMap<String, &'a Map<String, Value>>);

impl<'a> Definitions<'a> {
    fn collect(&mut self, schema: &'a Value, namespace: &str, depth: usize) -> Result<(), String> {
        check_depth(depth)?;
        match schema {
            Value::Array(union) => {
                union.iter().try_for_each(|schema| self.collect(schema, namespace, depth + 1))
            }
            Value::Object(object) => self.collect_object(object, namespace, depth),
            _ => Ok(()),
        }
    }

    fn collect_object(
        &mut self,
        object: &'a Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<(), String> {
        let Some(full_name) = defined_name(object, namespace) else {
            let mut inner =
                ["items", "values", "type"].into_iter().filter_map(|key| object.get(key));
            return inner.try_for_each(|schema| self.collect(schema, namespace, depth + 1));
        };
        let namespace = namespace_of(&full_name).to_owned();
        match self.0.get(&full_name) {
            // Two texts may define the same type; that is not a conflict.
            Some(other) if *other != object => {
                return Err(format!(
                    "the schema and its references define {full_name:?} twice, with \
                    different content"
                ));
            }
            Some(_) => return Ok(()),
            None => self.0.insert(full_name, object),
        };
        let fields = object.get("fields").and_then(Value::as_array).into_iter().flatten();
        fields
            .filter_map(|field| field.get("type"))
            .try_for_each(|schema| self.collect(schema, &namespace, depth + 1))
    }

    /// Returns the full name that a name refers to: a type in its namespace or, without such a type, one without a
    /// namespace. Java's library resolves names like this, and producers rely on it.
    fn resolve(&self, name: &str, namespace: &str) -> String {
        let full_name = full_name(name, namespace);
        let has_no_namespace = !name.contains('.');
        if has_no_namespace && !self.0.contains_key(&full_name) && self.0.contains_key(name) {
            return name.to_owned();
        }
        full_name
    }
}

struct Writer<'a> {
    definitions: Definitions<'a>,
    /// The full names of the types already in the result.
    written: HashSet<String>,
    name_bytes: usize,
}

impl Writer<'_> {
    fn schema(&mut self, schema: &Value, namespace: &str, depth: usize) -> Result<Value, String> {
        check_depth(depth)?;
        match schema {
            Value::String(name) => self.named(name, namespace, depth),
            Value::Array(union) => {
                let variants =
                    union.iter().map(|variant| self.schema(variant, namespace, depth + 1));
                variants.collect::<Result<_, _>>().map(Value::Array)
            }
            Value::Object(object) => self.object(object, namespace, depth),
            other => Ok(other.clone()),
        }
    }

    /// Writes a type given by name: its definition at the first use, a reference later.
    fn named(&mut self, name: &str, namespace: &str, depth: usize) -> Result<Value, String> {
        let full_name = self.definitions.resolve(name, namespace);
        match self.definitions.0.get(&full_name).copied() {
            _ if is_primitive(name) => Ok(name.into()),
            _ if self.written.contains(&full_name) => self.reference(&full_name, namespace),
            Some(definition) => self.definition(definition, &full_name, depth),
            // Not defined in any of the schemas: the parser of the result reports it.
            None => Ok(name.into()),
        }
    }

    fn object(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<Value, String> {
        if let Some(full_name) = defined_name(object, namespace) {
            return if self.written.contains(&full_name) {
                self.reference(&full_name, namespace)
            } else {
                self.definition(object, &full_name, depth)
            };
        }
        match object.get("type") {
            // `{"type": "Name"}`. The definition replaces the object, because parsers do not accept a schema as the
            // type of another one.
            Some(Value::String(name)) if !is_complex(name) && !is_primitive(name) => {
                self.named(name, namespace, depth)
            }
            _ => {
                let mut written = object.clone();
                // A schema as `type` is not valid Avro, but some parsers accept it.
                for key in ["items", "values", "type"] {
                    if let Some(inner) = object.get(key)
                        && !(key == "type" && inner.is_string())
                    {
                        written.insert(key.into(), self.schema(inner, namespace, depth + 1)?);
                    }
                }
                Ok(written.into())
            }
        }
    }

    fn definition(
        &mut self,
        object: &Map<String, Value>,
        full_name: &str,
        depth: usize,
    ) -> Result<Value, String> {
        self.count_name(full_name)?;
        // Before the fields, which may refer to this type.
        self.written.insert(full_name.to_owned());
        let namespace = namespace_of(full_name);
        let mut written = without(object, "fields");
        written.insert("name".into(), full_name[namespace.len()..].trim_start_matches('.').into());
        // Written even if empty: the enclosing type may have a namespace.
        written.insert("namespace".into(), namespace.into());
        if let Some(Value::Array(fields)) = object.get("fields") {
            let fields = fields.iter().map(|field| self.field(field, namespace, depth));
            written.insert("fields".into(), fields.collect::<Result<_, _>>().map(Value::Array)?);
        }
        Ok(written.into())
    }

    fn field(&mut self, field: &Value, namespace: &str, depth: usize) -> Result<Value, String> {
        let Value::Object(object) = field else { return Ok(field.clone()) };
        let mut written = without(object, "type");
        if let Some(schema) = object.get("type") {
            written.insert("type".into(), self.schema(schema, namespace, depth + 1)?);
        }
        Ok(written.into())
    }

    /// Returns a reference to a type that is already in the result.
    fn reference(&mut self, full_name: &str, namespace: &str) -> Result<Value, String> {
        self.count_name(full_name)?;
        let is_ambiguous = !namespace.is_empty() && !full_name.contains('.');
        // A leading dot keeps the enclosing namespace from being applied.
        Ok(if is_ambiguous { format!(".{full_name}") } else { full_name.to_owned() }.into())
    }

    fn count_name(&mut self, name: &str) -> Result<(), String> {
        self.name_bytes += name.len();
        if self.name_bytes > NAME_BYTES_MAX {
            return Err("the schema has too many long names, more than 1 MiB".into());
        }
        Ok(())
    }
}

fn check_depth(depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("the schema nests types more than {DEPTH_MAX} levels deep"));
    }
    Ok(())
}

/// Copies the members except that of `name`, which the caller rewrites.
fn without(object: &Map<String, Value>, name: &str) -> Map<String, Value> {
    let others = object.iter().filter(|(key, _)| *key != name);
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the full name of the type that the object defines, if any.
fn defined_name(object: &Map<String, Value>, enclosing: &str) -> Option<String> {
    let kind = object.get("type")?.as_str()?;
    if !matches!(kind, "record" | "error" | "enum" | "fixed") {
        return None;
    }
    let name = object.get("name")?.as_str()?;
    let namespace = object.get("namespace").and_then(Value::as_str).unwrap_or(enclosing);
    Some(full_name(name, namespace))
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.rsplit_once('.') {
        Some(("", bare)) => bare.to_owned(),
        Some(_) => name.to_owned(),
        None if namespace.is_empty() => name.to_owned(),
        None => format!("{namespace}.{name}"),
    }
}

fn namespace_of(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

fn is_complex(kind: &str) -> bool {
    matches!(kind, "record" | "error" | "enum" | "fixed" | "array" | "map")
}

fn is_primitive(name: &str) -> bool {
    matches!(name, "null" | "boolean" | "int" | "long" | "float" | "double" | "bytes" | "string")
}

#[cfg(test)]
mod tests;
