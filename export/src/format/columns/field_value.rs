//! The value of a field in a row.

use attribution::rules::policy::Policy;
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::field::Field;
use super::value::Value;

impl<'a> Value<'a> {
    /// Returns the value of a field. `props` are the values of the prop columns from this field on.
    pub fn of(
        field: &Field,
        key: &RowKey,
        row: &RowView<'a>,
        policy: &'a Policy,
        props: &mut impl Iterator<Item = &'a str>,
    ) -> Self {
        match field {
            Field::Column(column) => Self::of_column(*column, key, row, policy),
            Field::Prop(_) => Self::text(props.next().unwrap_or_default().into()),
            Field::AppsFlyer(column) => column.cell.value(key, row, policy),
        }
    }
}
