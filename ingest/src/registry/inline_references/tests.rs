//! Each case is a schema, the schemas that it refers to, and the expected self-contained schema.

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check(root: Value, referenced: &[Value], expected: Value) {
    let referenced: Vec<String> = referenced.iter().map(Value::to_string).collect();
    let inlined: Value =
        serde_json::from_str(&inline(&root.to_string(), &referenced).unwrap()).unwrap();
    assert_eq!(inlined, expected, "{inlined:#}");
}

#[track_caller]
fn check_wrong(root: &str, referenced: &[Value], expected: &str) {
    let referenced: Vec<String> = referenced.iter().map(Value::to_string).collect();
    let problem = inline(root, &referenced).unwrap_err();
    assert!(problem.contains(expected), "{problem}");
}

/// Returns a record with fields `f0`, `f1`, … of these types.
fn record(namespace: &str, name: &str, types: &[Value]) -> Value {
    let field =
        |(index, schema): (usize, &Value)| json!({"name": format!("f{index}"), "type": schema});
    let fields: Vec<Value> = types.iter().enumerate().map(field).collect();
    json!({"type": "record", "name": name, "namespace": namespace, "fields": fields})
}

fn colour(namespace: &str) -> Value {
    json!({"type": "enum", "name": "Colour", "namespace": namespace, "symbols": ["RED"]})
}

#[test]
fn a_type_is_defined_where_it_is_first_used() {
    let inner = || record("n", "In", &[json!("int")]);
    let outer = |types: &[Value]| record("n", "Out", types);
    check(outer(&[json!("n.In")]), &[inner()], outer(&[inner()]));
    check(outer(&[json!("In")]), &[inner()], outer(&[inner()]));
    check(outer(&[json!("In"), json!("n.In")]), &[inner()], outer(&[inner(), json!("n.In")]));
    check(outer(&[json!(["null", "In"])]), &[inner()], outer(&[json!(["null", inner()])]));
    let array = |items: Value| json!({"type": "array", "items": items, "default": []});
    check(outer(&[array(json!("In"))]), &[inner()], outer(&[array(inner())]));
    let map = |values: Value| json!({"type": "map", "values": values});
    check(outer(&[map(map(json!("In")))]), &[inner()], outer(&[map(map(inner()))]));
    check(json!(["null", "n.In"]), &[inner()], json!(["null", inner()]));
    check(json!("n.In"), &[inner()], inner());
    check(outer(&[json!({"type": "n.In"})]), &[inner()], outer(&[inner()]));
}

#[test]
fn text_that_is_not_a_reference_stays() {
    let date = || json!({"type": "int", "logicalType": "date"});
    let all = || {
        record("n", "All", &[json!("int"), json!(["null", "string"]), date(), json!("x.Absent")])
    };
    check(all(), &[], all());
    check(json!("string"), &[], json!("string"));
    // A default or a doc that looks like a type is not a reference.
    let mut documented = record("n", "Documented", &[json!("string")]);
    documented["fields"][0]["default"] = json!("n.In");
    documented["doc"] = json!("n.In");
    check(documented.clone(), &[record("n", "In", &[])], documented);
}

#[test]
fn nested_references_are_inlined() {
    let c = || record("n.c", "C", &[json!("long")]);
    let b = |schema: Value| record("n.b", "B", &[schema]);
    let a = |types: &[Value]| record("n.a", "A", types);
    check(a(&[json!("n.b.B")]), &[b(json!("n.c.C")), c()], a(&[b(c())]));
    check(a(&[json!("n.b.B")]), &[c(), b(json!("n.c.C"))], a(&[b(c())]));
    // Two references to one type: the first in the schema gets the definition.
    let types = [json!("n.c.C"), json!("n.b.B")];
    check(a(&types), &[b(json!("n.c.C")), c()], a(&[c(), b(json!("n.c.C"))]));
}

#[test]
fn names_are_resolved_in_the_namespace_of_their_schema() {
    let bare = |name: &str, types: &[Value]| {
        let mut bare = record("", name, types);
        bare.as_object_mut().unwrap().remove("namespace");
        bare
    };
    // A name is resolved in the namespace of its own schema, not that of the enclosing type.
    let (x, y) = (|| record("x", "In", &[json!("int")]), || record("y", "In", &[json!("long")]));
    let outer = |types: &[Value]| record("y", "Out", types);
    check(outer(&[json!("x.In"), json!("In")]), &[x(), y()], outer(&[x(), y()]));
    // A type without a namespace inside one with a namespace is marked; otherwise it would inherit that namespace.
    let types = [json!("Bare"), json!("Bare")];
    let expected = outer(&[record("", "Bare", &[json!("int")]), json!(".Bare")]);
    check(outer(&types), &[bare("Bare", &[json!("int")])], expected);
    let expected = record("", "Top", &[record("", "Bare", &[]), json!("Bare")]);
    check(bare("Top", &types), &[bare("Bare", &[])], expected);
    // A dotted name overrides the `namespace` member.
    let dotted = json!({"type": "fixed", "name": "x.F", "namespace": "ignored", "size": 4});
    let fixed = json!({"type": "fixed", "name": "F", "namespace": "x", "size": 4});
    check(outer(&[json!("x.F")]), &[dotted], outer(&[fixed]));
    // Nested types inherit the namespace.
    let holder = |colour: Value| record("h", "Holder", &[colour]);
    let inherited = json!({"type": "enum", "name": "Colour", "symbols": ["RED"]});
    let expected = outer(&[colour("h"), holder(json!("h.Colour"))]);
    check(outer(&[json!("h.Colour"), json!("h.Holder")]), &[holder(inherited)], expected);
}

#[test]
fn recursive_types_terminate() {
    let list = |next: &str| record("n", "List", &[json!(["null", next])]);
    check(json!("n.List"), &[list("List")], list("n.List"));
    // Circular references, which no registry accepts.
    let a = |b: Value| record("n", "A", &[json!(["null", b])]);
    let b = |a: &str| record("n", "B", &[json!(["null", a])]);
    check(a(json!("B")), &[b("A"), a(json!("B"))], a(b("n.A")));
}

#[test]
fn a_type_defined_in_two_texts_is_defined_once() {
    let with = |name: &str, schema: Value| record("n", name, &[schema]);
    let outer = |types: &[Value]| record("n", "Out", types);
    let referenced = [with("A", colour("n")), with("B", colour("n"))];
    let expected = outer(&[with("A", colour("n")), with("B", json!("n.Colour"))]);
    check(outer(&[json!("A"), json!("B")]), &referenced, expected);
    let mut other = colour("n");
    other["symbols"] = json!(["BLUE"]);
    let referenced = [with("A", colour("n")), with("B", other)];
    check_wrong("\"n.A\"", &referenced, "define \"n.Colour\" twice");
}

#[test]
fn schemas_that_nest_too_deep_or_have_too_long_names_are_refused() {
    let mut deep = json!("int");
    for _ in 0..70 {
        deep = json!([deep]);
    }
    check_wrong(&deep.to_string(), &[], "more than 64 levels");
    let chain =
        |index: usize| record("n", &format!("R{index}"), &[json!(format!("R{}", index + 1))]);
    let referenced: Vec<Value> = (0..80).map(chain).collect();
    check_wrong("\"n.R0\"", &referenced, "more than 64 levels");
    let long = "x".repeat(100_000);
    let names: Vec<Value> = (0..20).map(|_| json!("Long")).collect();
    let referenced = [record(&long, "Long", &[])];
    check_wrong(&record(&long, "Out", &names).to_string(), &referenced, "too many long names");
    check_wrong("{", &[], "is not JSON");
}
