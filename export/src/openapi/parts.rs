//! Parts of descriptions that several parameters share.

use serde_json::{Value, json};

use crate::appsflyer::column::additional_names;

/// A date of 1970 or later, with a time and an offset or without.
pub(super) const TIME: &str = "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
    ([Tt]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,9})?)?\
    ([Zz]|[+ -]([01][0-9]|2[0-3]):[0-5][0-9])?)?$";

/// An item of a list: quoted as a cell of CSV is, where there is a comma in it.
pub(super) const ITEM: &str = "^([^\",][^,]*|\"([^\"]|\"\")+\")$";

/// Any name is one; what is not known is an empty column.
pub(super) fn additional_fields(description: &str) -> Value {
    list(
        description,
        json!({ "anyOf": [{ "type": "string", "enum": additional_names() }, { "type": "string" }] }),
        json!(["match_type", "install_app_store"]),
    )
}

pub(super) fn names<T>(named: &[(&'static str, T)]) -> Vec<&'static str> {
    named.iter().map(|(name, _)| *name).collect()
}

/// Values with commas between; the parameter may be repeated too.
pub(super) fn list(description: &str, items: Value, example: Value) -> Value {
    json!({
        "description": format!("{description}. Several have commas between, or repeat it."),
        "style": "form",
        "explode": false,
        "schema": { "type": "array", "items": items, "minItems": 1 },
        "example": example,
    })
}
