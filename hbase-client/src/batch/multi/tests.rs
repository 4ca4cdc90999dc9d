//! What is sent for a batch, and the outcomes that are read from the response.

use bytes::Bytes;
use prost::Message;

use super::*;
use crate::proto::common::{NameBytesPair, RegionSpecifier};
use crate::proto::data::{
    self, BinaryComparator, Column, ColumnRangeFilter, MultiRequest, ResultOrException,
};
use crate::rows::{CheckAndMutate, Delete, Get, Mutation, NewCell, Put, Selection};
use crate::wire::cell::{Cell, Kind};

fn region(name: &'static str) -> Arc<Region> {
    Arc::new(Region { name: name.into(), ..Region::example("", "") })
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

/// Returns a call to two regions: a put, a check and a get on the first, a put on the second.
fn multi() -> Multi {
    let actions = [put("a"), check("b"), get("c"), put("z")];
    let first = Group { region: region("r1"), ids: vec![0, 1, 2] };
    let second = Group { region: region("r2"), ids: vec![3] };
    Multi::build(&actions, &[first, second])
}

/// Decodes a request as a server does.
fn request(multi: &Multi) -> MultiRequest {
    MultiRequest::decode(multi.request.0.clone()).unwrap()
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

fn read(results: Vec<RegionActionResult>, cells: Bytes) -> Result<MultiResults, WireError> {
    multi().read(&MultiResponse { region_action_result: results }, cells)
}

#[test]
fn cells_of_puts_are_in_the_block_and_those_of_checks_in_the_message() {
    let mut multi = multi();
    let rows: Vec<_> = std::iter::from_fn(|| Cell::take(&mut multi.cells).ok())
        .map(|cell| cell.row().to_vec())
        .collect();
    assert_eq!(rows, [b"a", b"z"]);
    let request = request(&multi);
    let regions: Vec<_> = request.region_action.iter().collect();
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
fn condition_compares_with_the_expected_value_or_an_empty_one() {
    let value = |check: CheckAndMutate| {
        let condition = single_region_action(Action::Check(check)).condition.unwrap();
        assert_eq!((&condition.row[..], condition.family), (&b"r"[..], Some("f".into())));
        assert_eq!((condition.qualifier, condition.compare_type), (Some("q".into()), Some(2)));
        let comparator = condition.comparator.unwrap();
        assert_eq!(comparator.name, "org.apache.hadoop.hbase.filter.BinaryComparator");
        let comparator = comparator.serialized_comparator.unwrap();
        BinaryComparator::decode(comparator).unwrap().comparable.value
    };
    let equal = CheckAndMutate::where_equal("f", "q", "old", Delete::new("r"));
    assert_eq!(value(equal), Some("old".into()));
    let absent = CheckAndMutate::where_absent("f", "q", Delete::new("r"));
    assert_eq!(value(absent), Some("".into()));
}

/// Returns the region action of a request with one action.
fn single_region_action(action: Action) -> data::RegionAction {
    let group = Group { region: region("r1"), ids: vec![0] };
    let mut parts = request(&Multi::build(&[action], &[group])).region_action;
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].region, RegionSpecifier::name(&"r1".into()));
    parts.remove(0)
}

#[test]
fn puts_and_deletes_are_encoded_with_their_attributes() {
    let changed = |change: Mutation| {
        single_region_action(Action::Mutate(change.change)).action.remove(0).mutation
    };
    let put = changed(Put::new("r").cell("f", "q", "v").ttl(1_000).into());
    let ttl = NameBytesPair {
        name: "_ttl".to_owned(),
        value: Some(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 3, 232])),
    };
    let expected = data::Mutation {
        row: Some("r".into()),
        mutate_type: Some(2),
        attribute: vec![ttl],
        associated_cell_count: Some(1),
        ..data::Mutation::default()
    };
    assert_eq!(put, Some(expected));
    let delete = changed(Delete::new("r").until(7).into());
    let expected = data::Mutation {
        row: Some("r".into()),
        mutate_type: Some(3),
        timestamp: Some(7),
        associated_cell_count: Some(0),
        ..data::Mutation::default()
    };
    assert_eq!(delete, Some(expected));
}

#[test]
fn cells_of_checked_deletes_are_in_the_message() {
    let delete = Delete::new("r").version(7, "f", "q").column("f", "q").family("f");
    let delete = delete.column_until(9, "f", vec![7; 300]);
    let check = CheckAndMutate::where_absent("f", "q", delete);
    let mutation = single_region_action(Action::Check(check)).action.remove(0).mutation.unwrap();
    let cells = mutation.column_value.into_iter().flat_map(|column| column.qualifier_value);
    let cells: Vec<_> = cells
        .map(|cell| (cell.delete_type.unwrap(), cell.timestamp.unwrap(), cell.qualifier.unwrap()))
        .collect();
    let latest = i64::MAX as u64;
    let (column, none, long) = (Bytes::from("q"), Bytes::new(), Bytes::from(vec![7; 300]));
    let expected = [(0, 7, column.clone()), (1, latest, column), (2, latest, none), (1, 9, long)];
    assert_eq!(cells, expected);
}

#[test]
fn gets_are_encoded_with_their_selection() {
    let got = |selection| {
        single_region_action(Action::Get(Get::new("r").select(selection))).action.remove(0).get
    };
    let all = data::Get { row: "r".into(), max_versions: Some(1), ..data::Get::default() };
    assert_eq!(got(Selection::all()), Some(all.clone()));
    let selection = Selection::all().column("f", "a").column("f", "b").family("g");
    let selection = selection.versions(3);
    let column = |family: &str, qualifiers: &[&str]| Column {
        family: family.to_owned().into(),
        qualifier: qualifiers.iter().map(|q| q.to_string().into()).collect(),
    };
    let expected = data::Get {
        column: vec![column("f", &["a", "b"]), column("g", &[])],
        max_versions: Some(3),
        ..all.clone()
    };
    assert_eq!(got(selection), Some(expected));
    let selection = Selection::all().columns_between("a".."z").columns_max(7);
    let filter = selection.filter();
    let get = got(selection).unwrap();
    assert_eq!((get.store_limit, &get.filter), (Some(7), &filter));
    let range = get.filter.unwrap().serialized_filter.unwrap();
    let expected = ColumnRangeFilter {
        min_column: Some("a".into()),
        min_column_inclusive: Some(true),
        max_column: Some("z".into()),
        max_column_inclusive: Some(false),
    };
    assert_eq!(ColumnRangeFilter::decode(range), Ok(expected));
}

#[test]
fn each_action_has_its_own_outcome() {
    let mut cells = Vec::new();
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
    // The results are in another order than the request.
    let outcomes = read(
        vec![processed(false), results(vec![found, failed]), results(vec![done(0)])],
        cells.into(),
    );
    let shown: Vec<_> = outcomes
        .unwrap()
        .into_iter()
        .map(|(id, outcome)| match outcome {
            Ok(Outcome::Checked(is_applied)) => format!("{id} {is_applied}"),
            Ok(Outcome::Row(Some(row))) => format!("{id} {}", row.key().escape_ascii()),
            Ok(_) => format!("{id} done"),
            Err(exception) => format!("{id} {}", exception.class),
        })
        .collect();
    assert_eq!(shown, ["1 false", "2 c", "0 a.RegionTooBusyException", "3 done"]);
}

#[test]
fn exception_of_a_region_applies_to_all_its_actions() {
    let failed = RegionActionResult {
        exception: exception("a.NotServingRegionException"),
        ..RegionActionResult::default()
    };
    let found = read(vec![failed.clone(), failed, results(vec![done(0)])], Bytes::new()).unwrap();
    let failed: Vec<_> =
        found.iter().filter(|(_, outcome)| outcome.is_err()).map(|(id, _)| *id).collect();
    assert_eq!(failed, [1, 0, 2]);
}

#[test]
fn actions_without_a_result_are_missing_from_the_results() {
    let found =
        read(vec![results(vec![]), results(vec![done(1)]), results(vec![done(0)])], Bytes::new());
    assert_eq!(found.unwrap().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3]);
    // Without `processed` it is unknown whether the condition of a check held.
    let found = read(vec![results(vec![done(0)]), results(vec![]), results(vec![])], Bytes::new());
    assert!(found.unwrap().is_empty());
}

#[test]
fn response_to_another_request_is_an_error() {
    let fine = || results(vec![done(0)]);
    assert!(read(vec![fine()], Bytes::new()).is_err());
    assert!(read(vec![processed(true), results(vec![done(7)]), fine()], Bytes::new()).is_err());
    let twice = results(vec![done(0), done(0)]);
    assert!(read(vec![processed(true), twice, fine()], Bytes::new()).is_err());
    let cells = Bytes::from_static(b"too many");
    assert!(read(vec![processed(true), fine(), fine()], cells).is_err());
}
