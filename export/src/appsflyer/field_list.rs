//! The columns of a report.

use std::borrow::Cow;

use super::column::{ADDITIONAL, Cell, HeadedColumn, columns};
use crate::format::columns::field::Field;

/// Returns all fixed columns, then the requested additional ones in their order, also unknown ones.
pub fn fields<'a>(additional: impl Iterator<Item = Cow<'a, str>>) -> Vec<Field> {
    let field = |heading, cell| Field::AppsFlyer(HeadedColumn { heading, cell });
    let fixed = columns().map(|(heading, cell)| field(heading.into(), cell));
    let additional = additional.filter(|name| !name.is_empty()).map(|name| {
        let known = ADDITIONAL.iter().find(|(known, _, _)| *known == name);
        match known {
            Some((_, heading, cell)) => field((*heading).into(), *cell),
            None => field(name.into_owned().into(), Cell::Unknown),
        }
    });
    fixed.chain(additional).collect()
}
