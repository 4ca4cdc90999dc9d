//! The columns of a report.

use std::borrow::Cow;
use std::collections::HashSet;

use super::column::{ADDITIONAL, Cell, HeadedColumn, columns};
use crate::format::columns::field::Field;

/// Returns all fixed columns, then the requested additional ones in their order, also unknown ones. The cells of a
/// column that is named again are empty: a long text is in each row once, however often a request names it.
pub fn fields<'a>(additional: impl Iterator<Item = Cow<'a, str>>) -> Vec<Field> {
    let mut named = HashSet::new();
    let field = |heading, cell| Field::AppsFlyer(HeadedColumn { heading, cell });
    let fixed = columns().map(|(heading, cell)| field(heading.into(), cell));
    let additional = additional.filter(|name| !name.is_empty()).map(|name| {
        let known = ADDITIONAL.iter().find(|(known, _, _)| *known == name);
        match known {
            Some((name, heading, cell)) => {
                let cell = if named.insert(*name) { *cell } else { Cell::Unknown };
                field((*heading).into(), cell)
            }
            None => field(name.into_owned().into(), Cell::Unknown),
        }
    });
    fixed.chain(additional).collect()
}
