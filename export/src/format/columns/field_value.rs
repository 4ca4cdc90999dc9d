//! The value of a field in a row.

use attribution::rules::policy::Policy;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;

use super::field::Field;
use super::prop::prop;
use super::value::Value;

impl<'a> Value<'a> {
    pub fn of(field: &Field, key: &RowKey, row: &RowView<'a>, policy: &'a Policy) -> Self {
        match field {
            Field::Column(column) => Self::of_column(*column, key, row, policy),
            Field::Prop(name) => Self::text(prop(row.text(TextCell::Props), name)),
            Field::AppsFlyer(column) => column.cell.value(key, row, policy),
        }
    }
}
