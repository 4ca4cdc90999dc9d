//! Groups the columns of a query into steps that write several cells at once.

use store::layout::codec::row::TextCell;

use super::cell::COMMAS_MAX;
use crate::appsflyer::column::Cell;
use crate::format::columns::field::Field;
use crate::format::columns::native::{Column, ContributorPart};

/// One or more cells of a line that are written together. Most cells of most rows are empty, and testing each cell
/// for emptiness would dominate the cost of a row.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Column(Column),
    /// The prop column at this index among the prop columns.
    Prop(usize),
    /// The texts from the first to the last, inclusive, in the order in which they are stored.
    Texts(TextCell, TextCell),
    /// All columns of the contributor at this index.
    Contributor(usize),
    /// This many cells that are always empty, at most [`COMMAS_MAX`].
    Empty(usize),
    AppsFlyer(Cell),
}

pub fn steps(fields: &[Field]) -> Vec<Step> {
    let (mut steps, mut props) = (Vec::new(), 0..);
    let mut rest = fields;
    while let Some((field, after)) = rest.split_first() {
        let (step, columns) = match field {
            Field::Prop(_) => (Step::Prop(props.next().unwrap_or_default()), 1),
            Field::Column(Column::Text(first)) => texts(*first, after),
            Field::Column(Column::Contributor(index, _)) if is_contributor(*index, rest) => {
                (Step::Contributor(*index), ContributorPart::ALL.len())
            }
            Field::Column(column) => (Step::Column(*column), 1),
            Field::AppsFlyer(column) => of_appsflyer(column.cell, rest),
        };
        steps.push(step);
        rest = rest.get(columns..).unwrap_or_default();
    }
    steps
}

fn of_appsflyer(cell: Cell, rest: &[Field]) -> (Step, usize) {
    let is_empty = |field: &&Field| match field {
        Field::AppsFlyer(column) => column.cell == Cell::Unknown,
        _ => false,
    };
    match cell {
        Cell::Unknown => {
            let count = rest.iter().take(COMMAS_MAX).take_while(is_empty).count();
            (Step::Empty(count), count)
        }
        Cell::Native(Column::Text(text)) => (Step::Texts(text, text), 1),
        Cell::Native(column) => (Step::Column(column), 1),
        _ => (Step::AppsFlyer(cell), 1),
    }
}

/// Returns the step that begins with a text, and its number of columns.
fn texts(first: TextCell, after: &[Field]) -> (Step, usize) {
    let stored = TextCell::ALL.into_iter().skip(first as usize + 1);
    let is_next =
        |(field, cell): &(&Field, TextCell)| **field == Field::Column(Column::Text(*cell));
    let more = after.iter().zip(stored).take_while(is_next);
    let (last, count) = more.fold((first, 1), |(_, count), (_, cell)| (cell, count + 1));
    (Step::Texts(first, last), count)
}

fn is_contributor(index: usize, fields: &[Field]) -> bool {
    let parts = ContributorPart::ALL.map(|part| Field::Column(Column::Contributor(index, part)));
    fields.starts_with(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> Vec<Step> {
        let fields = fields.split(',').map(|name| Field::parse(name).unwrap());
        steps(&fields.collect::<Vec<_>>())
    }

    #[test]
    fn consecutive_stored_texts_are_one_step() {
        use TextCell::{Caid, Idfa, Idfv, Imei, Oaid, Props, Ua};
        assert_eq!(of("ua"), [Step::Texts(Ua, Ua)]);
        let expected = [
            Step::Texts(Oaid, Idfa),
            Step::Texts(Idfv, Idfv),
            Step::Texts(Caid, Caid),
            Step::Texts(Imei, Imei),
            Step::Prop(0),
        ];
        assert_eq!(of("oaid,gaid,idfa,idfv,caid,imei,props.x"), expected);
        assert_eq!(of("props.b,props.a"), [Step::Prop(0), Step::Prop(1)]);
        assert_eq!(of("ua,ua,ip"), [Step::Texts(Ua, Ua), of("ua").remove(0), of("ip").remove(0)]);
        let native: Vec<_> = Column::all().map(Field::Column).collect();
        assert_eq!(steps(&native).last(), Some(&Step::Texts(Imei, Props)));
    }

    #[test]
    fn a_complete_contributor_is_one_step() {
        let parts = ["spreadid", "channel", "touch_type", "touch_time", "match_type"];
        let all = parts.map(|part| format!("contributor2_{part}")).join(",");
        let [pid, second] = [Step::Column(Column::Pid), Step::Contributor(1)];
        assert_eq!(of(&format!("{all},pid")), [second, pid]);
        let less = all.rsplit_once(',').unwrap().0;
        assert_eq!(of(less).len(), 4);
        assert_eq!(of(&format!("pid,{less},contributor1_match_type")).len(), 6);
    }
}
