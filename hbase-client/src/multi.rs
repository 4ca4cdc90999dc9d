//! The call that does many things to many rows: actions into a message, the answer into what came
//! of each. No IO.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message;

use crate::action::{Action, Change, CheckAndMutate, Get, NewCell, Outcome};
use crate::fault::Fault;
use crate::location::Region;
use crate::proto::common::{NameBytesPair, RegionSpecifier};
use crate::proto::data::{
    self, BinaryComparator, ByteArrayComparable, ColumnValue, Comparator, Condition, MultiRequest,
    MultiResponse, QualifierValue, RegionAction, RegionActionResult,
};
use crate::rows::{self, Row};
use crate::wire::WireError;
use crate::wire::cell::Kind;

/// Actions, by their places in the batch, that go to one region.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub region: Arc<Region>,
    pub ids: Vec<u32>,
}

/// A call: what goes out, and which action each part of the answer will be about.
#[derive(Debug)]
pub(crate) struct Multi {
    pub request: MultiRequest,
    pub cells: Bytes,
    /// Of each region action.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    ids: Vec<u32>,
    is_check: bool,
}

/// What is said of each action; one of which nothing is said is not there.
pub(crate) type Said = Vec<(u32, Result<Outcome, Fault>)>;

const EQUAL: i32 = 2;
const COMPARATOR: &str = "org.apache.hadoop.hbase.filter.BinaryComparator";
const PUT: i32 = 2;
const DELETE: i32 = 3;

impl Multi {
    pub fn build(actions: &[Action], groups: &[Group]) -> Self {
        let mut multi =
            Self { request: MultiRequest::default(), cells: Bytes::new(), parts: Vec::new() };
        let all = groups.iter().flat_map(|group| &group.ids);
        let bytes = all.map(|&id| actions[id as usize].bytes()).sum();
        let mut cells = BytesMut::with_capacity(bytes);
        for group in groups {
            multi.add(actions, group, &mut cells);
        }
        multi.cells = cells.freeze();
        multi
    }

    fn add(&mut self, actions: &[Action], group: &Group, cells: &mut BytesMut) {
        let region = RegionSpecifier::name(&group.region.name);
        let (mut plain, mut ids) = (Vec::with_capacity(group.ids.len()), Vec::new());
        for &id in &group.ids {
            let mut action = data::Action { index: Some(plain.len() as u32), ..Default::default() };
            match &actions[id as usize] {
                Action::Mutate(change) => action.mutation = Some(in_block(change, cells)),
                Action::Get(get) => action.get = Some(get_message(get)),
                Action::Check(check) => {
                    // A condition is one for all actions beside it: a region action of its own.
                    let action = vec![checked(check)];
                    let condition = Some(condition(check));
                    let region = region.clone();
                    self.request.region_action.push(RegionAction { region, action, condition });
                    self.parts.push(Part { ids: vec![id], is_check: true });
                    continue;
                }
            }
            plain.push(action);
            ids.push(id);
        }
        if !plain.is_empty() {
            let region_action = RegionAction { region, action: plain, condition: None };
            self.request.region_action.push(region_action);
            self.parts.push(Part { ids, is_check: false });
        }
    }

    /// # Errors
    /// Where it is not an answer to this call: then nothing of it can be believed.
    pub fn read(&self, answer: &MultiResponse, mut cells: Bytes) -> Result<Said, WireError> {
        let results = &answer.region_action_result;
        if results.len() != self.parts.len() {
            return Err(WireError::Nonsense("an answer about another number of regions"));
        }
        let mut said = Vec::new();
        for (part, result) in self.parts.iter().zip(results) {
            part.read(result, &mut cells, &mut said)?;
        }
        if !cells.is_empty() {
            return Err(WireError::Nonsense("more cells than are announced"));
        }
        Ok(said)
    }
}

impl Part {
    fn read(
        &self,
        result: &RegionActionResult,
        cells: &mut Bytes,
        said: &mut Said,
    ) -> Result<(), WireError> {
        if let Some(exception) = &result.exception {
            let fault = Fault::from_pair(exception);
            said.extend(self.ids.iter().map(|&id| (id, Err(fault.clone()))));
            return Ok(());
        }
        if self.is_check
            && let Some(processed) = result.processed
        {
            said.extend(self.ids.iter().map(|&id| (id, Ok(Outcome::Checked(processed)))));
            return Ok(());
        }
        let mut seen = HashSet::with_capacity(self.ids.len());
        for result in &result.result_or_exception {
            let index = result.index.unwrap_or(0);
            let id = self.ids.get(index as usize).filter(|_| seen.insert(index));
            let &id = id.ok_or(WireError::Nonsense("an answer about another row"))?;
            let outcome = match (&result.exception, &result.result) {
                (Some(exception), _) => Err(Fault::from_pair(exception)),
                (None, Some(result)) => Ok(Outcome::Row(Row::new(rows::of_result(result, cells)?))),
                (None, None) => Ok(Outcome::Row(None)),
            };
            if !(self.is_check && outcome.is_ok()) {
                said.push((id, outcome));
            }
        }
        Ok(())
    }
}

/// Its cells go into the block, and the message has their number.
fn in_block(change: &Change, cells: &mut BytesMut) -> data::Mutation {
    for cell in &change.cells {
        cell.parts(&change.row).put(cells);
    }
    let associated_cell_count = Some(change.cells.len() as i32);
    data::Mutation { associated_cell_count, ..mutation(change) }
}

fn mutation(change: &Change) -> data::Mutation {
    data::Mutation {
        row: Some(change.row.clone()),
        mutate_type: Some(if change.is_delete { DELETE } else { PUT }),
        timestamp: change.until,
        attribute: change.ttl_ms.map(ttl).into_iter().collect(),
        ..data::Mutation::default()
    }
}

/// As HBase's own clients tell it.
fn ttl(ms: u64) -> NameBytesPair {
    let value = Bytes::copy_from_slice(&ms.to_be_bytes());
    NameBytesPair { name: "_ttl".to_owned(), value: Some(value) }
}

/// Its cells stay in the message: where a condition can not even be checked, a server may forget to
/// skip cells of the block, and take them for those of the next row.
fn checked(check: &CheckAndMutate) -> data::Action {
    let column_value = check.change.cells.iter().map(in_message).collect();
    let mutation = data::Mutation { column_value, ..mutation(&check.change) };
    data::Action { index: Some(0), mutation: Some(mutation), get: None }
}

fn in_message(cell: &NewCell) -> ColumnValue {
    let delete_type = match cell.kind {
        Kind::Put => None,
        Kind::Delete => Some(0),
        Kind::DeleteColumn => Some(1),
        Kind::DeleteFamily => Some(2),
        Kind::DeleteFamilyVersion => Some(3),
    };
    let value = QualifierValue {
        qualifier: Some(cell.qualifier.clone()),
        value: Some(cell.value.clone()),
        timestamp: Some(cell.timestamp),
        delete_type,
    };
    ColumnValue { family: cell.family.clone(), qualifier_value: vec![value] }
}

fn condition(check: &CheckAndMutate) -> Condition {
    let comparable =
        ByteArrayComparable { value: Some(check.expected.clone().unwrap_or_default()) };
    let comparator = BinaryComparator { comparable }.encode_to_vec();
    Condition {
        row: check.change.row.clone(),
        family: Some(check.family.clone()),
        qualifier: Some(check.qualifier.clone()),
        compare_type: Some(EQUAL),
        comparator: Some(Comparator {
            name: COMPARATOR.to_owned(),
            serialized_comparator: Some(comparator.into()),
        }),
    }
}

fn get_message(get: &Get) -> data::Get {
    data::Get {
        row: get.row.clone(),
        column: get.selection.columns.clone(),
        filter: get.selection.filter(),
        store_limit: get.selection.columns_max,
        time_range: get.selection.times(),
        max_versions: Some(get.selection.versions),
        cache_blocks: Some(get.selection.cache_blocks),
    }
}

#[cfg(test)]
mod tests;
