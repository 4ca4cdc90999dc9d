use bytes::Bytes;

use super::*;
use crate::action::{Delete, Mutation, Put};
use crate::proto::common::NameBytesPair;
use crate::proto::data::ResultOrException;
use crate::wire::cell::Cell;

fn region(name: &'static str) -> Arc<Region> {
    let server = "h:1".parse().unwrap();
    Arc::new(Region { name: name.into(), id: 1, start: "".into(), end: "".into(), server })
}

fn put(row: &'static str) -> Action {
    Action::Mutate(Mutation::from(Put::new(row).cell("f", "q", row)).change)
}

fn check(row: &'static str) -> Action {
    let put = Put::new(row).cell("f", "q", "new");
    Action::Check(CheckAndMutate::where_equal("f", "q", "old", put))
}

fn get(row: &'static str) -> Action {
    Action::Get(Get::new(row))
}

/// Two regions: a put, a check and a get; and a put.
fn multi() -> Multi {
    let actions = [put("a"), check("b"), get("c"), put("z")];
    let first = Group { region: region("r1"), ids: vec![0, 1, 2] };
    let second = Group { region: region("r2"), ids: vec![3] };
    Multi::build(&actions, &[first, second])
}

fn exception(class: &str) -> Option<NameBytesPair> {
    Some(NameBytesPair { name: class.to_owned(), value: None })
}

fn done(index: u32) -> ResultOrException {
    let result = Some(data::Result::default());
    ResultOrException { index: Some(index), result, exception: None }
}

fn results(results: Vec<ResultOrException>) -> RegionActionResult {
    RegionActionResult { result_or_exception: results, ..RegionActionResult::default() }
}

fn processed(processed: bool) -> RegionActionResult {
    RegionActionResult { processed: Some(processed), ..results(vec![done(0)]) }
}

fn read(results: Vec<RegionActionResult>, cells: Bytes) -> Result<Said, WireError> {
    multi().read(&MultiResponse { region_action_result: results }, cells)
}

#[test]
fn cells_of_puts_are_in_the_block_and_those_of_checks_in_the_message() {
    let mut multi = multi();
    let rows: Vec<_> = std::iter::from_fn(|| Cell::take(&mut multi.cells).ok())
        .map(|cell| cell.row_bytes())
        .collect();
    assert_eq!(rows, ["a", "z"]);
    let regions: Vec<_> = multi.request.region_action.iter().collect();
    // The check has a region action of its own.
    assert_eq!(regions.iter().map(|r| r.action.len()).collect::<Vec<_>>(), [1, 2, 1]);
    assert!(regions[0].condition.is_some() && regions[1].condition.is_none());
    let checked = regions[0].action[0].mutation.as_ref().unwrap();
    assert_eq!((checked.associated_cell_count, checked.column_value.len()), (None, 1));
    let counts: Vec<_> = regions[1]
        .action
        .iter()
        .map(|a| a.mutation.as_ref().map(|m| m.associated_cell_count))
        .collect();
    assert_eq!(counts, [Some(Some(1)), None]);
}

#[test]
fn condition_names_value_or_absence() {
    let value = |check: &CheckAndMutate| {
        let comparator = condition(check).comparator.unwrap().serialized_comparator.unwrap();
        BinaryComparator::decode(comparator).unwrap().comparable.value
    };
    let equal = CheckAndMutate::where_equal("f", "q", "old", Delete::new("r"));
    assert_eq!(value(&equal), Some("old".into()));
    let absent = CheckAndMutate::where_absent("f", "q", Delete::new("r"));
    assert_eq!(value(&absent), Some("".into()));
}

#[test]
fn each_action_has_its_own_outcome() {
    let mut cells = BytesMut::new();
    NewCell {
        family: "f".into(),
        qualifier: "q".into(),
        timestamp: 1,
        kind: Kind::Put,
        value: "found".into(),
    }
    .parts(b"c")
    .put(&mut cells);
    let row = data::Result { associated_cell_count: Some(1), ..data::Result::default() };
    let found = ResultOrException { index: Some(1), result: Some(row), exception: None };
    let failed = ResultOrException {
        index: Some(0),
        result: None,
        exception: exception("a.RegionTooBusyException"),
    };
    // In another order than they were sent in.
    let said = read(
        vec![processed(false), results(vec![found, failed]), results(vec![done(0)])],
        cells.freeze(),
    );
    let shown: Vec<_> = said
        .unwrap()
        .into_iter()
        .map(|(id, outcome)| match outcome {
            Ok(Outcome::Checked(held)) => format!("{id} {held}"),
            Ok(Outcome::Row(Some(row))) => format!("{id} {}", row.key().escape_ascii()),
            Ok(_) => format!("{id} done"),
            Err(fault) => format!("{id} {}", fault.class),
        })
        .collect();
    assert_eq!(shown, ["1 false", "2 c", "0 a.RegionTooBusyException", "3 done"]);
}

#[test]
fn exception_of_a_region_is_one_of_all_its_actions() {
    let failed = RegionActionResult {
        exception: exception("a.NotServingRegionException"),
        ..RegionActionResult::default()
    };
    let said = read(vec![failed.clone(), failed, results(vec![done(0)])], Bytes::new()).unwrap();
    let failed: Vec<_> = said.iter().filter(|(_, outcome)| outcome.is_err()).map(|s| s.0).collect();
    assert_eq!(failed, [1, 0, 2]);
}

#[test]
fn what_nothing_is_said_of_is_not_there() {
    let said =
        read(vec![results(vec![]), results(vec![done(1)]), results(vec![done(0)])], Bytes::new());
    assert_eq!(said.unwrap().iter().map(|said| said.0).collect::<Vec<_>>(), [2, 3]);
    // A check without `processed`, which says nothing about the condition.
    let said = read(vec![results(vec![done(0)]), results(vec![]), results(vec![])], Bytes::new());
    assert!(said.unwrap().is_empty());
}

#[test]
fn answer_to_something_else_is_an_error() {
    let fine = || results(vec![done(0)]);
    assert!(read(vec![fine()], Bytes::new()).is_err());
    assert!(read(vec![processed(true), results(vec![done(7)]), fine()], Bytes::new()).is_err());
    let twice = results(vec![done(0), done(0)]);
    assert!(read(vec![processed(true), twice, fine()], Bytes::new()).is_err());
    let cells = Bytes::from_static(b"too many");
    assert!(read(vec![processed(true), fine(), fine()], cells).is_err());
}
